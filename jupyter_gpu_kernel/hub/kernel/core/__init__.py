"""The core of one kernel: `KernelCore.handle(event)` returns effects. Nothing here does I/O, or knows a clock.

- `events.py` are what happens, `effects.py` what is to be done. `kernel_core.py` decides what an event means for the
  kernel: `life.py` has the kernel's states, `access.py` says which front end owns the kernel.
- `relay.py` passes messages on, at the rate of `pacing.py`, and takes the events of the keeper.
- `request_table.py` has the requests without a reply, each a `pending_request.py`, and decides what waits, and which
  messages about a request front ends get.
- What front ends get from the hub: `placeholder.py` answers in the kernel's place, `late_subscribers.py` repeats what a
  client has missed that subscribes late, and `displays.py` is what cells show for a while, such as the notice that the
  node cannot be reached.
"""
