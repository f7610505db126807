"""The agent's end of one SSH session: the process `attach`.

`attach.py` routes frames between the hub and keepers, and answers requests about the node, for which `handlers.py` has
a method each. `keepers.py` finds, asks and starts keepers.
"""
