"""Pinned code: the kernel's working directory is a checkout of the user's repository at one commit."""
