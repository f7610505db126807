"""Configures the C library's memory allocator in the keeper's process."""

from __future__ import annotations

import ctypes

_M_MMAP_THRESHOLD = -3
_LARGE = 128 * 1024


def return_large_blocks() -> None:
    """Have glibc return large freed blocks to the system at once, instead of keeping them for later allocations."""
    try:
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE)
    except (OSError, AttributeError):  # another C library
        pass
