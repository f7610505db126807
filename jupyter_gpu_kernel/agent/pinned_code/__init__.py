"""Pinned code: the kernel's working directory is a checkout of the user's repository at one commit.

`checkout.py` makes and removes checkouts, `git.py` runs git for it, and `kernel_code.py` is the pinned code of one
kernel, for its keeper.
"""
