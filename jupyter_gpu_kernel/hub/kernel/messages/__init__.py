"""The messages of one kernel.

- `relay.py` passes them on, with `pacing.py` and `keeper_events.py`; `relayed_kernel.py` is what
  it asks of the kernel.
- `request_table.py` has the requests without a reply, each a `pending_request.py`, and decides what waits, and which
  messages about a request front ends get.
- What front ends get in the kernel's place: `placeholder.py`, `offline_notice.py` and `displays.py`, and
  `not_started.py` while a cell has not started the kernel.
"""
