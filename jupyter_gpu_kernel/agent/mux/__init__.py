"""The agent's end of one SSH connection: it routes frames to keepers and answers requests about the node."""
