"""The kernel's process, for its keeper.

`kernel_process.py` starts and ends the process, `adopted_process.py` is one that a killed keeper has started,
`environment.py` makes its environment, `kernel_sockets.py` has its ZeroMQ sockets, and `signals.py` sends signals to it
and reports those that it received.
"""
