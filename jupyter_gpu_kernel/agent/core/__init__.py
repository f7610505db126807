"""The pure core of a keeper: what passes between front ends and the kernel, and what is kept of it.

- `keeper_core.py`: `KeeperCore.handle` takes one of `events.py`, and returns some of `effects.py`, which
  `keeper/core_runner.py` carries out. The core has no clock, no sockets, no files and no processes.
- `log.py` changes the state of the kernel's log (`agent/log/`), and decides which messages the hub gets now.
- `relay.py` passes messages in both directions. `message_limit.py` replaces messages of the kernel that are too large.
- `waiting.py` is the line of the requests that wait: it decides what a cell waits for, and which cells end together.
  `code_request.py` reads the code that the first cell may name (`%gpu code`).
- `internal_requests.py` tells the keeper's own requests to the kernel from those of front ends.
- `reattach.py` is about a front end that returns to a kernel, and what the one before it has missed. `cell_texts.py`
  has the texts that cells show for a while.
"""
