"""Signing in to one hop.

- `auth.py` tries the agent, key files, then passwords and codes, by paramiko. `keys.py` finds the user's keys.
- `deadline.py` has the time limit, which does not run while the user types, and decides whose turn it is to ask.
"""
