"""The agreement among the users of a node: leases, and the queue of kernels that wait.

Both are announcements (`announcements.py`): listening sockets with a name, whose owners `socket_owner.py` finds.
`lease.py` takes and reads leases, `lease_transfer.py` passes them to another keeper, `ignored_leases.py` says which
leases of others a kernel ignores. `wait_queue.py` is one kernel's place in the queue, `turns.py` the order in it, as
pure functions, and `queue_view.py` the queue as users read it.
"""
