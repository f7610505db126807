"""What passes between front ends and the kernel, and what is kept of it. No processes, no sockets."""
