"""Checks whether torch, tensorflow and jax in the kernel's Python can compute on this node's GPUs."""
