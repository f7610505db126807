"""Signing in to one hop.

- `auth.py` tries the agent, key files, then passwords and codes, by paramiko. `keys.py` finds the user's keys.
- `asking.py` is about questions to the user: what kind of secret is asked for, whose turn it is to ask, and the time
  limit, which does not run while the user types.
"""
