"""The agent runs on the work node (Python 3.8 or newer, pyzmq). It is sent as text; the local side never imports it.

`__main__.py` has the subcommands. `mux/` is the end of an SSH connection, `keeper/` the process that serves one kernel,
with `relay/` (messages), `log/` (what is kept of them), `process/` (the kernel's process), `gpus/`, `exit/` (why it
ended) and `failover/` (a killed keeper). `in_kernel/` runs inside the kernel, `spare/` forks kernels, `job/` runs in a
scheduler's job, and `pinned_code/` checks out commits. `system/` is what all of them use of the operating system.
`paths.py` says where files are, `policy.py` what the site allows; `story.py` writes what `logs` shows, `refused.py` has
refusals, `kernel_settings.py` and `kernel_context.py` what most parts of a keeper get, and `kernel_protocol.py` what a
kernel and its keepers agree on. `virtual_env.sh` and `framework_check.py` are programs that are sent by themselves.
"""
