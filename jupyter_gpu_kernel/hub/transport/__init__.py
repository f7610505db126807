"""What all transports have in common.

- `connection.py` has the base class of all connections to a node, which runs commands and scripts to their end.
- `stream.py` has the one class of streams between hub and node. `process.py` carries a stream by a program of this
  machine, and `hub/ssh/paramiko_hop.py` by a channel of paramiko.
"""
