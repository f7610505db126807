"""What a kernel and the successor of its killed keeper must both know: what cells show, and a request."""

from __future__ import annotations

REPEAT_INPUT = "gpu_kernel_repeat_input"
"""The type of the message on stdin by which a successor asks for the input_request that has no answer yet."""
_BEGIN = "[This kernel's keeper was killed, and another one took over.\n"
ENDED = f"\n{_BEGIN}A part of this cell's output may be lost.]\n"
RUNNING = _BEGIN + "A part of this cell's output may be lost; the cell goes on.]"
"""A line for a cell that still runs."""


def is_notice(text: str) -> bool:
    """Return whether this output is such a notice."""
    return text.startswith("\n" + _BEGIN)
