"""A killed keeper is replaced: the kernel starts a successor, which takes the running kernel over."""
