"""The log of one kernel: the messages to its front ends, numbered, and the requests that have no reply yet.

- `state.py` has the state, and the changes that are possible. The core changes it (`agent/core/log.py`).
- `log_file.py` writes each change to a file, from which the successor of a killed keeper makes the same state. It also
  has the messages that wait for the hub (`hub_queue.py`, which leaves out what is too much): in memory (`waiting.py`),
  then on disk (`segments.py`). `superseding.py` says which output later output makes obsolete.
- `cells.py` has the last cells with their output, whether a front end has received it or not. `requests.py` has the
  requests of front ends.
"""
