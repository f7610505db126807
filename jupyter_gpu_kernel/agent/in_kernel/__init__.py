"""What runs inside the kernel's process: its start, the guard against SIGTERM, what users import."""
