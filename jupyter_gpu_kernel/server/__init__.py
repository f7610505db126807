"""The Jupyter server extension: HTTP handlers beside Jupyter's own. The hub does the work."""
