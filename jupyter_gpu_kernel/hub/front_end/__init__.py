"""The front ends of one kernel, and the messages that they exchange with the hub.

- `front_ends.py` are the front ends of one kernel. `edge.py` is one front end: it verifies and signs messages.
  `requests.py` is what the hub reads in them.
- `sockets.py` are the five sockets of a front end, `watched_socket.py` is one of them on the event loop, and
  `local_peers.py` refuses connections of other users.
- `delivered.py` has the files by which the successor of a killed hub goes on.
"""
