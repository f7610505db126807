"""Kernels that a cell of their user starts: those in jobs, and those with several hosts. Until then they are pending.

`starter.py` is what both kinds of starters have in common: `jobs/job_starter.py` and `several_hosts/host_starter.py`.
`pending_kernels.py` has all pending kernels, for commands. What front ends get of a pending kernel is in
`kernel/late_start.py` and `kernel/messages/not_started.py`.
"""
