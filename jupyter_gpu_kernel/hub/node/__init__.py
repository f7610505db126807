"""One work node: its connection, the link to its agent, and what the node reports.

- `node.py` is one work node, and `nodes.py` are all of them. `watch.py` serves what `--watch` asks again and again.
- `shared_connection.py` is a node's connection. `link.py` is the link over it, `node_link.py` the link as a kernel sees
  it, `attachments.py` the kernels on it, and `stream_threads.py` its bytes.
- `install.py` brings the agent to the node and starts it.
- `check/` finds out what a node offers: its Python, and for the commands `add` and `check` all the rest.
"""
