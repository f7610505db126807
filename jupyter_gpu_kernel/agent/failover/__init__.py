"""The replacement of a keeper that was killed.

`keeper_pipe.py` is the pipe by which a kernel notices that its keeper has died, and over which the keeper tells the
kernel how to start a successor. `successor.py` is that keeper. `inherited_cells.py` finds out which cells of the killed
keeper the kernel has, and `lost_output.py` tells in cells that a part of their output may be lost. The kernel's side is
`in_kernel/keeper_watch.py`.
"""
