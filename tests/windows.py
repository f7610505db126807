"""Windows of one size, for tests of what happens when a window is full."""

from __future__ import annotations

from jupyter_gpu_kernel.wire.stream.window import Window


def fixed_window(size: int) -> Window:
    """Return a window that always has this size."""
    return Window(lambda: 0.0, size, size, size)
