"""The kernel's output in the keeper: merged, written to disk while nobody reads, up to a limit, in order.

- `backlog.py` has the messages that wait for a hub: in `memory_queue.py`, then on disk in `spill.py`.
- `superseding.py` says which output later output makes obsolete, and `reduction.py` leaves out what is too much.
- `history.py` has the last cells with their outputs, whether a front end has received them or not.
"""
