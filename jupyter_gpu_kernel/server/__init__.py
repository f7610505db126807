"""The Jupyter server extension: an HTTP API over the hub, for the JupyterLab extension.

Requests are authenticated and authorised as in every Jupyter handler. Nothing of this is needed for a kernel to run.

extension: what Jupyter loads, what all handlers share, and kernel websockets without delay; api: the table of requests,
and what all of them need. add/: the form for a new kernelspec; questions/: what the user is asked;
running/: kernels and nodes. serve/ is not a part of the extension: the Jupyter server that `serve` runs.
"""
