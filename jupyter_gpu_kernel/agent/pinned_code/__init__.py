"""Pinned code: the kernel's working directory is a worktree of the user's repository at one commit."""
