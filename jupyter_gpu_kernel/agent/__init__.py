"""The agent: what runs on the work node, with Python 3.8 or newer and pyzmq. It is sent as text, and never imported by
the local side.

`__main__.py` has the subcommands. `mux/` is the end of an SSH connection, `keeper/` the process that serves one kernel,
with `relay/` (messages), `process/` (the kernel's process), `gpus/`, `exit/` (why it ended) and `failover/` (a killed
keeper). `in_kernel/` runs inside the kernel, `spare/` forks kernels, `job/` runs in a scheduler's job, and
`pinned_code/` checks out commits. `system/` is what all of them use of the operating system. `paths.py` says where
files are, and `kernel_protocol.py` what a kernel and its keepers agree on. `virtual_env.sh` and `framework_check.py`
are programs that are sent by themselves.
"""
