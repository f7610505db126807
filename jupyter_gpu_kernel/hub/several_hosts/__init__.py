"""Kernels whose kernelspec names several hosts, of which the hub chooses one.

`placement.py` chooses the host for a new kernel, `relocation.py` finds and restarts kernels on other hosts, and
`shared_wait.py` lets a kernel that waits for GPUs wait on all of its hosts at once.
"""
