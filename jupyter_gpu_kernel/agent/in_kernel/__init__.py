"""What runs in the kernel's own process: its start, the guard against SIGTERM, and the module `gpu_kernel`."""
