"""How the agent comes to a node.

- `agent_file.py` packs the agent.
- `deploy.py` installs the agent on the node if it is missing there, starts it, and explains why it does not start.
"""
