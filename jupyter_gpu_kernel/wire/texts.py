"""What texts for users have in common: they name our commands as their reader can run them."""

from __future__ import annotations

COMMAND = "jupyter gpu-kernel"
"""How texts name our program where nothing else is known."""


def with_program(text: str, program: str) -> str:
    """The text with `program` (quoted for the reader's shell; "" if not known) in place of COMMAND."""
    return text.replace(COMMAND + " ", program + " ") if program else text
