"""What the agent uses of the operating system.

`agent_runtime.py` has the clocks, random numbers and unix sockets of a process, starts and signals others, and runs
programs to their end. `process_control.py` makes daemons, and `procfs.py` reads /proc. `loop.py` is the event loop of a
keeper and of a job's process, `frame_connection.py` a connection in it on which frames pass, and `request_client.py`
the other end of such a connection.
"""
