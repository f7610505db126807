"""Kernels that a cell of their user starts: those in jobs, and those with several hosts. Before that they are pending.

`starter.py` has the life of such a kernel, which is the same for both kinds: the wait for a cell or for a place that is
known, the start, the time with the kernel, its end. What both kinds do differently is in `jobs/job_starter.py` and
`several_hosts/host_starter.py`. Pending kernels are in the hub's one list of kernels, `kernels.py`. What a starter does
with its kernel, and what front ends get of a pending kernel, is in `kernel/late_start.py`.
"""
