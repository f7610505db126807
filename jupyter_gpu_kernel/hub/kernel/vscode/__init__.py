"""VS Code, which starts a new launcher for each start of a kernel.

- `sessions.py` tells restarts from returns; `notebook.py` reads the notebook's name out of requests.
- `pending_stops.py` ends the kernels that a restart has replaced, as soon as their nodes can be reached.
"""
