"""The site's limit on how long a kernel keeps its GPUs while kernels of other users wait for them.

The user is warned in advance: the running cell and the next one show a text, and the SIGTERM functions run, so that
work can be saved. When nobody waits any more, nothing happens. At the limit a kernel that has not opened its GPUs gives
them back; any other kernel ends, since only then its GPUs are free.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Optional

from ....wire.texts import duration
from ...core.events import GreetingChanged

if TYPE_CHECKING:
    from ..keeper import Keeper

NOTICE = 600.0
"""Seconds from the notice to the limit."""
WAITED = 60.0
"""Seconds for which another kernel must have waited: a shorter wait may end by itself."""
INTERVAL = 15.0
"""Seconds between two looks at who waits."""
STAGGER = 60.0
"""Seconds between two kernels that give GPUs back: the GPUs of the first kernel may be enough."""
HOOK_TIME = 10.0
"""Seconds from the last call of the SIGTERM functions to the end."""


class HoldClock:
    """Decides when a kernel gives its GPUs back. Pure; times are in seconds."""

    def __init__(self, longest: float, notice: float) -> None:
        self._longest = longest
        self._notice = notice
        self._deadline: Optional[float] = None

    def deadline(self, now: float, held_since: Optional[float], others_wait: bool) -> Optional[float]:
        """Return when the kernel gives its GPUs back, which its user should know; None if nothing is to be known yet.

        held_since: None if the kernel has no GPUs that it could give back.
        """
        if held_since is None or not others_wait or now < held_since + self._longest - self._notice:
            self._deadline = None
        elif self._deadline is None:
            self._deadline = max(held_since + self._longest, now + self._notice)
        return self._deadline

    def is_over(self, now: float, older: int) -> bool:
        """Whether the kernel gives its GPUs back now. `older`: how many other kernels give theirs back first."""
        return self._deadline is not None and now >= self._deadline + older * STAGGER


class HoldLimit:
    """Watches the kernel's GPUs from the creation of this object on. `longest`: how long a kernel may keep GPUs."""

    def __init__(self, keeper: Keeper, longest: float) -> None:
        self._keeper = keeper
        self._loop = keeper.loop
        self._acquisition = keeper.gpus.acquisition
        self._warned = False
        self._ending = False
        self._longest = longest
        self._clock = HoldClock(longest, NOTICE)
        self._loop.later(INTERVAL, self._look)

    def _look(self) -> None:
        self._loop.later(INTERVAL, self._look)
        if self._ending:
            return
        gpus, now = self._acquisition, self._loop.runtime.time()
        waiting = gpus.others_waiting(WAITED) if gpus.held_since is not None else 0
        deadline = self._clock.deadline(now, gpus.held_since, waiting > 0)
        if deadline is not None and self._clock.is_over(now, gpus.older_holders()):
            self._end(waiting)
        elif deadline is not None and not self._warned:
            self._tell(f"{self._why(waiting)}. {self._what(deadline)}", hooks=True)
        elif deadline is None and self._warned:
            self._tell("Nobody waits for this kernel's GPUs any more: it keeps them.", hooks=False)
        self._warned = deadline is not None

    def _why(self, waiting: int) -> str:
        kernels = (
            "a kernel of another user waits" if waiting == 1 else f"{waiting} kernels of other users wait"
        )
        return (
            f"The site's policy lets a kernel keep its GPUs for {duration(self._longest)} while others wait, "
            f"and {kernels}"
        )

    def _what(self, deadline: float) -> str:
        when = time.strftime("%H:%M", time.localtime(deadline))
        return (
            f"After {when} this kernel gives {', '.join(self._acquisition.names)} back, if they still wait; "
            "if it has used the GPU, it ends. Save your work."
        )

    def _tell(self, text: str, hooks: bool) -> None:
        self._keeper.story.tell("gpu", text)
        self._keeper.requests.show_notice(text, hooks)
        self._keeper.handle(GreetingChanged("warning", text if hooks else ""))

    def _end(self, waiting: int) -> None:
        """Give the GPUs back, after the SIGTERM functions have had the time to save what is new."""
        self._ending = True
        why = self._why(waiting)
        text = f"{why}. This kernel gives its GPUs back now."
        self._keeper.requests.show_notice(text, hooks=True)
        self._keeper.handle(GreetingChanged("warning", ""))
        self._loop.later(HOOK_TIME, lambda: self._ended(why))

    def _ended(self, why: str) -> None:
        self._ending = self._warned = False
        why = why[0].lower() + why[1:]
        if self._acquisition.held_since is None:
            return
        if self._keeper.status.state == "idle" and not self._keeper.kernel.has_opened_gpus:
            self._keeper.gpus.release_unused(why)
        else:
            self._keeper.stop(why)
