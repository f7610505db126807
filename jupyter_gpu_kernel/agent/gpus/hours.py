"""The hours in which a user's kernels had GPUs, and in which cells ran there: what keepers report of them, and what
stories say.

A story says when a kernel took GPUs. For how long it had them, and for how long of it a cell ran, is in its entries
"usage", which `GpuTime` writes: each of them covers the time since the one before it. There is one when the kernel
loses its GPUs, and one every 15 minutes while it has them. What a killed keeper has not reported by then is unknown,
and not 0: `KernelHours` reads stories, as a pure function of them.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ...wire.texts import duration
from ..story import Story

INTERVAL = 900.0
"""Seconds that an entry covers at most, about."""
_NAME = re.compile(r"GPU (\d{1,6}) \(([^()]*)\)")
_MAX_TEXT = 200


class GpuTime:
    """Writes into the story of a kernel for how long it had its GPUs, and for how long of it a cell ran.

    Call `update` at each change of the kernel's state or GPUs, and from time to time.
    """

    def __init__(
        self,
        now: Callable[[], float],
        story: Story,
        uuids: Callable[[], List[str]],
        names: Callable[[], List[str]],
    ) -> None:
        """now: Return the seconds of a monotonic clock. uuids, names: Return the kernel's GPUs."""
        self._now = now
        self._story = story
        self._uuids, self._names = uuids, names
        self._gpus: List[str] = []
        self._text = ""
        self._busy_now = False
        self._updated = now()
        self._held = self._busy = 0.0

    def update(self, state: Optional[str] = None) -> None:
        """Note the kernel's new state, unless it is None, and the GPUs that the kernel has now."""
        self._count()
        if state is not None:
            self._busy_now = state == "busy"
        gpus = self._uuids()
        if gpus != self._gpus:
            if self._gpus:
                self._write(released=True)
            self._gpus, self._text = list(gpus), ", ".join(self._names())
            self._held = self._busy = 0.0
        elif gpus and self._held >= INTERVAL:
            self._write()

    def unreported(self) -> Dict[str, Any]:
        """Return what the next entry of the story would say now."""
        self._count()
        return {"gpus": self._gpus, "held": round(self._held, 1), "busy": round(self._busy, 1)}

    def _count(self) -> None:
        now = self._now()
        passed, self._updated = now - self._updated, now
        if self._gpus:
            self._held += passed
            self._busy += passed if self._busy_now else 0.0

    def _write(self, **more: bool) -> None:
        verb = "released" if more else "has"
        text = f"{verb} {self._text}: in {duration(round(self._held))}, a cell ran for {duration(round(self._busy))}"
        unwritten = self._story.unwritten
        self._story.tell("usage", text, **self.unreported(), **more)
        if self._story.unwritten == unwritten:  # else the next entry covers this time, too
            self._held = self._busy = 0.0


class Piece(NamedTuple):
    """A part of the time in which a kernel had GPUs: it ended at `end`, and took `held` seconds. busy: for how many of
    them a cell ran; None if that is unknown."""

    end: float
    held: float
    busy: Optional[float]

    def within(self, since: float, until: float) -> Piece:
        """Return the part of this piece between these moments; a cell counts as having run as often in each part."""
        start, end = max(self.end - self.held, since), min(self.end, until)
        share = max(0.0, end - start) / self.held if self.held > 0 else 0.0
        busy = None if self.busy is None else self.busy * share
        return Piece(end, self.held * share, busy)


class Hold:
    """The time in which a kernel had the same GPUs, without a break. `end`: None while the kernel has them."""

    def __init__(self, gpus: Tuple[str, ...], start: float) -> None:
        self.gpus = gpus
        self.start = start
        self.end: Optional[float] = None
        self.pieces: List[Piece] = []
        self._known_until = start

    def add(self, piece: Piece) -> None:
        """Add a part of the time, after those before."""
        self.pieces.append(piece)
        self._known_until = piece.end

    def unknown_until(self, time: float) -> None:
        """The kernel had the GPUs until then, and no keeper has reported for how long a cell ran."""
        if time > self._known_until:
            self.add(Piece(time, time - self._known_until, None))


class KernelHours:
    """What the story of one kernel says about its GPUs."""

    def __init__(self) -> None:
        self.holds: List[Hold] = []
        self.names: Dict[str, Tuple[int, str]] = {}
        """The index and name of each GPU, by its UUID."""
        self.notebook = ""
        self._open: Optional[Hold] = None
        self._last = 0.0  # the time of the last entry that the kernel, or its keeper, has written
        self._restarts = False  # the process has ended, and another one may follow with the same GPUs

    @classmethod
    def read(
        cls, story: Iterable[Mapping[str, Any]], now: float, usage: Optional[Mapping[str, Any]]
    ) -> KernelHours:
        """Read a story. usage: None if the kernel does not run; else what its keeper has not reported yet, {} if
        that is unknown."""
        kernel = cls()
        for entry in story:
            kernel._add(entry)
        if usage is None or usage.get("gpus") == []:
            kernel._close(kernel._last)
        elif not kernel._usage(now, usage) and kernel._open is not None:
            kernel._open.unknown_until(now)
        return kernel

    def _add(self, entry: Mapping[str, Any]) -> None:
        time, event = entry["time"], entry["event"]
        self.notebook = str(entry.get("notebook") or self.notebook)
        if event == "end" and "returncode" not in entry:
            return self._close(self._last)  # somebody found later that the kernel no longer exists
        if event == "end":
            self._restarts = entry.get("asked") == "restart"
            if not self._restarts:
                self._close(time)
        elif event == "start":
            self._restarts = False
        elif event == "succession" and self._open is not None:
            self._open.unknown_until(time)
        elif event == "usage":
            self._usage(time, entry)
        elif event == "gpu":
            self._gpu(time, entry)
        if not self._restarts or event == "end":
            self._last = time

    def _gpu(self, time: float, entry: Mapping[str, Any]) -> None:
        gpus = tuple(entry.get("gpus") or ())
        if gpus:
            self._close(self._last)
            self._begin(gpus, time)
            self._learn_names(gpus, entry)

    def _usage(self, time: float, entry: Mapping[str, Any]) -> bool:
        """The keeper reports the `held` seconds before this time, by a clock that nobody sets. Return whether it
        does."""
        gpus, held, busy = tuple(entry.get("gpus") or ()), entry.get("held"), entry.get("busy")
        if not gpus or held is None or busy is None:
            return False
        if self._open is None or self._open.gpus != gpus:  # GPUs of a scheduler; or the beginning is lost
            self._close(time - held)
            self._begin(gpus, time - held)
        assert self._open is not None
        self._open.add(Piece(time, held, min(busy, held)))
        self._learn_names(gpus, entry)
        if entry.get("released") is True:
            self._close(time)
        return True

    def _learn_names(self, gpus: Tuple[str, ...], entry: Mapping[str, Any]) -> None:
        known = _NAME.findall(str(entry.get("text")))
        if len(known) == len(gpus):
            self.names.update(zip(gpus, ((int(index), name[:_MAX_TEXT]) for index, name in known)))

    def _begin(self, gpus: Tuple[str, ...], time: float) -> None:
        self._open = Hold(gpus, time)
        self.holds.append(self._open)

    def _close(self, time: float) -> None:
        """The kernel has no longer had its GPUs since then."""
        if self._open is not None:
            self._open.unknown_until(time)
            self._open.end = max(time, self._open.start)
            self._open = None


def rows(kernel_id: str, kernel: KernelHours, since: float, now: float) -> List[Dict[str, Any]]:
    """Return a row for each GPU, and each time in which the kernel had the GPU between these moments."""
    found = []
    for hold in kernel.holds:
        pieces = [piece.within(since, now) for piece in hold.pieces]
        held = sum(piece.held for piece in pieces)
        known = [piece for piece in pieces if piece.busy is not None and piece.held > 0]
        if (hold.end is not None and hold.end < since) or hold.start > now:
            continue
        for uuid in hold.gpus:
            index, name = kernel.names.get(uuid, (None, ""))
            found.append(
                {
                    "uuid": uuid,
                    "index": index,
                    "name": name,
                    "kernel": kernel_id,
                    "notebook": kernel.notebook[-_MAX_TEXT:],
                    "from": hold.start,
                    "to": hold.end,
                    "seconds_held": round(held, 1),
                    "seconds_busy": round(sum(piece.busy or 0.0 for piece in known), 1) if known else None,
                    "seconds_unknown": round(held - sum(piece.held for piece in known), 1),
                }
            )
    return found


def with_names(found: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Return the rows, with the names that other rows know of the same GPU."""
    known = {row["uuid"]: (row["index"], row["name"]) for row in found if row["name"]}
    return [dict(row, **dict(zip(("index", "name"), known.get(row["uuid"], (None, ""))))) for row in found]
