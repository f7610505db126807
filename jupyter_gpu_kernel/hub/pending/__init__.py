"""Kernels that a cell of their user starts: those in jobs, and those with several hosts. Until then they are pending.

`starter.py` is what both kinds of starters have in common: `jobs/job_starter.py` and `several_hosts/host_starter.py`.
Pending kernels are in the hub's one list of kernels, `kernels.py`. What a starter does with its kernel, and what front
ends get of a pending kernel, is in `kernel/late_start.py`.
"""
