"""The user's ssh configuration, and the route that it makes of what the user wrote. Nothing here connects.

- `destination.py` parses what a user writes for one machine.
- `ssh_config.py` looks that machine up with `ssh -G`.
- `route.py` makes the hops of a route of both, and lists the hosts that the files name.
- `directives.py` has the table of all directives, and `algorithms.py` the lists of algorithms.
- `reasons.py` says why a hop needs the ssh program.
"""
