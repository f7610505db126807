"""Kernels whose kernelspec names several hosts, of which the hub chooses one when a cell of the user needs GPUs.

`host_starter.py` starts one kernel: `placement.py` asks the hosts what they offer, and `host_wait.py` waits for GPUs on
one of them, by a reservation: a keeper that has no notebook until it is chosen.
"""
