"""The Jupyter server extension and its HTTP API."""
