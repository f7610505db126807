"""The messages of one kernel.

- `relay.py` passes them on, at the rate of `pacing.py`, and takes the events of the keeper.
- `request_table.py` has the requests without a reply, each a `pending_request.py`, and decides what waits, and which
  messages about a request front ends get.
- What front ends get from the hub: `placeholder.py` answers in the kernel's place, and `displays.py` is what cells
  show for a while, such as the notice that the node cannot be reached.
"""
