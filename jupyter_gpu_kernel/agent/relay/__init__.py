"""What passes between front ends and the kernel, and what is kept of it. No processes, no sockets.

- `relay.py` passes messages in both directions.
- `waiting.py` is the line of the requests that wait: it decides what a cell waits for, and which cells end together.
  `code_request.py` reads and pins the code that the first cell may name (`%gpu code`).
- `internal_requests.py` makes the keeper's own requests to the kernel.
- `repeated.py` recognizes what the kernel sends the successor of a killed keeper again.
- `message_limit.py` replaces messages of the kernel that are too large.
- `reattach.py` is about a front end that returns to a kernel: what it missed, and the text that it is shown.
"""
