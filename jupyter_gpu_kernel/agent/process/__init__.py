"""The kernel's process: its start, sockets, environment and signals."""
