"""A killed keeper is replaced: the kernel starts a successor, which takes the running kernel over.

`successor.py` is the start of the successor, `keeper_pipe.py` the pipe by which the kernel notices the end of its
keeper. `inherited_cells.py` finds out which cells the killed keeper had passed on, and `lost_output.py` which output
may be lost.
"""
