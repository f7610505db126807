"""The Jupyter server extension: an HTTP API over the hub, for the JupyterLab extension.

Requests are authenticated and authorised as in every Jupyter handler. Nothing of this is needed for a kernel to run.
"""
