"""Fixtures of several files: kernels with the guard."""

from guarded import archive, kernel, shared, start

__all__ = ["archive", "kernel", "shared", "start"]
