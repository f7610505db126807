"""The agent's end of one SSH connection.

`attach.py` is the process: it routes frames to keepers, and runs requests about the node in threads. `handlers.py` has
a handler for each request, and `keepers.py` asks and starts keepers.
"""
