"""The node's part of `check --gpu`.

`check.py` starts and is the process `check ID`, which answers one request: about the driver, or about one framework.
`free_gpu.py` leases a GPU that nobody uses, `framework.py` is the process that imports a framework and computes with
it, and `supervision.py` runs such a process within bounds.
"""
