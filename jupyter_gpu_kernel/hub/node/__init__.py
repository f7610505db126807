"""One work node: its connection, the link to its agent, the agent's installation, and what the node reports."""
