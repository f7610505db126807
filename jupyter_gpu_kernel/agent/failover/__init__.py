"""The replacement of a keeper that was killed.

`keeper_pipe.py` is the pipe by which a kernel notices that its keeper has died, and over which the keeper tells the
kernel how to start a successor. `successor.py` is that keeper, which goes on with the killed keeper's log
(`agent/log/`). The kernel's side is `in_kernel/keeper_watch.py` and `in_kernel/unread_messages.py`.
"""
