"""The keeper: one process for each kernel, which starts the kernel, serves hubs, and ends when the kernel has ended.

- `keeper.py` connects the parts, and decides when the kernel's process is started, stopped and restarted. `system.py`
  is what a keeper uses of its node, and `lifetime.py` the end of the kernel and of the keeper.
- `core_runner.py` gives events to the keeper's pure core (`agent/core/`), and has its effects carried out.
- `server.py` is the socket at which hubs attach, and slows a kernel whose output is not read. `commands.py` does what
  hubs ask, and has what they see of the kernel.
- `limits/` decides when an idle kernel ends and when its GPUs are given back, and warns before the end of a Slurm job.
- `client.py` starts keepers' processes and sends requests to keepers, for `attach`; `setup.py` runs set-up lines first.
"""
