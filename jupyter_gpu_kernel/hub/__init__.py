"""The hub: one process per user, which has the connections to nodes and serves the ports of all front ends.

`app.py` is the process, which `spawn.py` starts. `rpc.py` takes the calls of clients (`client_connection.py` is the
connection of one client), and `operations/` answers them. `kernels.py` has the kernels that front ends use;
`kernel_settings.py` what the hub reads of their settings. `validate.py` and `sanitize.py` check what comes from nodes
and front ends, `paths.py` names files and addresses, and `background.py` runs what nobody waits for.
`connections/`, `ssh/`, `openssh/` and `transport/` make connections; `node/` is one work node; `front_end/` and
`kernel/` are the two sides of a kernel; `jobs/`, `slurm/` and `several_hosts/` are about kernels that a cell starts;
`virtual_env.py` makes environments.
"""
