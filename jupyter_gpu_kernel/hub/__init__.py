"""The hub: one process per user, which has the connections to nodes and serves the ports of all front ends.

`app.py` is the process, which `spawn.py` starts and `process.py` sets up. `rpc.py` takes clients' calls (`clients/` has
their connections), and `operations.py` and `front_end_operations.py` answer them; `rows.py` makes lists of what nodes
reply. `kernels.py` has the kernels that front ends use; `kernel_settings.py` what the hub reads of their settings.
`validate.py` and `sanitize.py` check what comes from nodes and front ends, `paths.py` names files and addresses, and
`background.py` runs what nobody waits for.
The architecture's page describes the folders.
"""
