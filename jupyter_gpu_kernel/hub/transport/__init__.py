"""What all transports have in common.

- `connection.py` has the base class of all connections to a node.
- `stream.py` has the one class of streams between hub and node. `process.py` carries a stream by a program of this
  machine, and `hub/ssh/paramiko_hop.py` by a channel of paramiko.
- `time_limit.py` limits the time of calls that may block.
- `short_command.py` runs a command to its end, and `script.py` makes scripts for /bin/sh and reads what they print.
"""
