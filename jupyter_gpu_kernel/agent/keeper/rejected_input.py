"""What comes of input that cannot be: a line in the story, and no more of them than a disk has room for."""

from __future__ import annotations

import traceback

from ...wire.endpoint import ProtocolError
from ...wire.fields import FieldError
from ...wire.frames import FrameError
from ...wire.messages import MessageError
from ..story import Limited, Story

MALFORMED = (FieldError, FrameError, MessageError, ProtocolError)
"""What is raised for input that cannot be."""


class RejectedInput:
    """`tell` of an error that ends a connection, or a request, and not the keeper."""

    def __init__(self, story: Story) -> None:
        self._lines = Limited(story)

    def tell(self, error: Exception) -> None:
        """If it is a fault of ours, the log gets the traceback."""
        if isinstance(error, MALFORMED):
            self._lines.tell("refused", f"malformed input was refused: {error}")
        elif self._lines.tell("fault", f"a fault of the keeper: {type(error).__name__}: {error}"):
            traceback.print_exception(type(error), error, error.__traceback__)
