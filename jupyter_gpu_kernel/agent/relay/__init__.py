"""What passes between front ends and the kernel, and what is kept of it. No processes, no sockets.

- `relay.py` passes messages in both directions. `requests.py` knows the requests that the kernel has, and makes the
  keeper's own. `message_limit.py` replaces messages of the kernel that are too large.
- `code_gate.py` is where the first cells wait until their code is pinned (`%gpu code`).
- `reattach.py` is about a front end that returns to a kernel: what it missed, and the text that it is shown.
"""
