"""The messages of one kernel.

- `relay.py` passes them on, with `pending_requests.py`, `last_input.py`, `moved_requests.py`, `pacing.py` and
  `keeper_events.py`; `relayed_kernel.py` is what it asks of the kernel.
- What front ends get in the kernel's place: `placeholder.py`, `offline_notice.py` and `displays.py`, and
  `not_started.py` while a cell has not started the kernel.
"""
