"""`jupyter gpu-kernel serve`: a Jupyter server on loopback, with remote kernels only, for editors such as VS Code.

app: the server, made of jupyter_server's application without its extensions, files and configuration. kernels: its
kernelspecs, kernels and sessions, which include the kernels of other front ends. websocket: the connection of one page,
and what happens when the page leaves and returns. delivery: which messages of the last cell a page has received.
"""
