"""How a connection to a work node is made.

- `connect.py` chooses the transport for a route, and makes all connections of the hub, also those to this machine.
- `commands.py` leads on through commands, such as `docker exec -i box`, and finds out whether the shell behind them can
  be used. `command_errors.py` says why a command gave no shell.
"""
