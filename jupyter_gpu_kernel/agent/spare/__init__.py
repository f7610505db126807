"""The spare interpreter: a process that has imported what a kernel needs, and from which kernels are forked."""
