"""What ends a kernel, or takes its GPUs, before its user does.

`idle_timer.py` measures how long the kernel has been idle, and `housekeeping.py` ends it when that is too long.
`kernel_job.py` warns before the end of the scheduler's job in which the kernel runs.
"""
