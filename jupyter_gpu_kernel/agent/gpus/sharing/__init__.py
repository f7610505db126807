"""The agreement among the users of a node: leases, and the queue of kernels that wait."""
