"""Kernels in the jobs of a scheduler: when a job is submitted, its node, and what becomes of it.

`job_kernels.py` is what the rest of the hub uses: all kernels in jobs, for commands and front ends. Each kernel has a
`job_starter.py`, which submits its job and starts the kernel there. `job_table.py` has the jobs (`job.py`) and decides
when they are cancelled, `job_nodes.py` leads to their nodes and reads what they have printed, and `job_files.py` is
what this computer remembers of them.
"""
