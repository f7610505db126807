"""Which front end owns a kernel.

The owner is the front end that ran a cell last, or the first one. It alone may interrupt, restart and end the kernel.
The others see the kernel's output.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...front_end.requests import FrontEndFacts


class Ownership:
    """The front ends of one kernel by number, and the number of the `owner`, which is None if there is none."""

    def __init__(self) -> None:
        self.front_ends: Mapping[int, FrontEndFacts] = {}
        self.owner: int | None = None

    def __repr__(self) -> str:
        return f"<Ownership {self.owner} of {list(self.front_ends)}>"

    @property
    def label(self) -> str:
        """The name by which users know the owner."""
        return "nobody" if self.owner is None else self.front_ends[self.owner].label

    @property
    def rate_limited(self) -> bool:
        """Whether one of the front ends drops messages above a rate."""
        return any(one.rate_limited for one in self.front_ends.values())

    @property
    def revives(self) -> bool:
        """Whether the owner's next cell starts the kernel anew if the kernel has ended."""
        return self.owner is not None and self.front_ends[self.owner].revives

    def changed(self, front_ends: Mapping[int, FrontEndFacts]) -> None:
        """The kernel has these front ends now. If the owner has left, the oldest front end owns the kernel."""
        self.front_ends = front_ends
        if self.owner not in front_ends:
            self.owner = next(iter(front_ends), None)
