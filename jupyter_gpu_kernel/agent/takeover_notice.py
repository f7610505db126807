"""What cells show when their kernel's keeper was killed, and another one has taken the kernel over."""

from __future__ import annotations

_BEGIN = "[This kernel's keeper was killed, and another one took over. "
ENDED = f"\n{_BEGIN}A part of this cell's output may be lost.]\n"
RUNNING = _BEGIN + "A part of this cell's output may be lost; the cell goes on.]"
"""A line for a cell that still runs."""


def is_notice(text: str) -> bool:
    """Return whether this output is such a notice."""
    return text.startswith("\n" + _BEGIN)
