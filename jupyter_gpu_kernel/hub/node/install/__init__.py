"""The agent's way to a node.

- `agent_file.py` packs the agent as one file.
- `deploy.py` installs that file on the node if it is missing, starts the agent, and explains why it does not start.
"""
