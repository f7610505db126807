"""The end of a kernel: why it ended, and the processes and folders that it left.

`report.py` observes a kernel's process for its keeper, and reports the end; `reason.py` finds the reason from facts, as
a pure function; `node_checks.py` reads such facts of the node. `descendants.py` finds and ends processes of a kernel,
`leftovers.py` those of kernels that no longer exist.
"""
