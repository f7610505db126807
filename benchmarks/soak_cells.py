"""What a front end of `soak_cluster.py` sends: the code of its cells, what each must bring, and what came.

What a cell must bring is known before it is sent: every line and display once and in order, one reply, one busy, one
idle. A cell that an interrupt, a restart or the end of its kernel stops brings the beginning, and a reply that is not
"ok".
"""

from __future__ import annotations

import random
import time
import zlib
from collections import Counter
from typing import Any

BEGIN = "soak = globals().get('soak', []) + [{number}]\n"
PRINT = "import time\nfor i in range({n}):\n    print({number}, i, flush={slow})\n    {slow} and time.sleep({pause})"
DISPLAY = """import random
display({{'text/plain': '{number} ' + random.Random({number}).randbytes({n}).hex()}}, raw=True)"""
ASK = "for i in range({n}):\n    print({number}, input(f'{number} {{i}}?'))"
KILL = """import contextlib, os, signal, threading
def _kill():
    with contextlib.suppress(OSError), open('/proc/{pid}/cmdline') as file:
        if {kernel!r} in file.read():
            os.kill({pid}, signal.SIGKILL)
threading.Timer({after}, _kill).start()"""


class Request:
    """A request of a user, what it must bring, and what came."""

    def __init__(
        self, kind: str, number: int, text: str | None = "", error: str = "", displays: int = 0
    ) -> None:
        """`text`: what it prints, if that is known; `error`: how it ends; `displays`: the bytes that it shows."""
        self.kind, self.number, self.text, self.error, self.displays = kind, number, text, error, displays
        self.sent = self.heard = time.time()
        self.stopped = ""
        """Why it may bring less."""
        self.replies: list[dict[str, Any]] = []
        self.states: Counter[str] = Counter()
        self.printed = self.shown = ""
        self.errors: list[str] = []
        self.asked = 0

    def __repr__(self) -> str:
        replies = [str(one)[:300] for one in self.replies]
        came = f"{dict(self.states)}, {len(self.printed)} characters, {replies}, {self.errors}"
        return f"{self.kind} {self.number}, sent {time.time() - self.sent:.1f} s ago: {came} {self.stopped}"

    @property
    def is_cell(self) -> bool:
        """Whether it runs code."""
        return not self.kind.endswith("_request")

    @property
    def done(self) -> bool:
        """Whether its reply and its idle status came."""
        return bool(self.replies) and self.states["idle"] > 0

    @property
    def ok(self) -> bool:
        """Whether it ran to its end."""
        return self.done and self.replies[0]["status"] == "ok"

    @property
    def says_ended(self) -> bool:
        """Whether its reply says that the kernel has ended, or its job before there was a kernel."""
        return any(one.get("ename") in ("DeadKernelError", "KernelStartError") for one in self.replies)

    def take(self, kind: str, content: dict[str, Any]) -> str:
        """A message has come. Return what it says that is not the cell's own."""
        self.heard = time.time()
        data = str(content.get("data", {}).get("text/plain", ""))
        if kind.endswith("_reply"):
            self.replies.append(content)
        elif kind in ("status", "execute_input"):
            self.states[content.get("execution_state", kind)] += 1
        elif kind == "error":
            self.errors.append(str(content["ename"]))
        elif kind == "stream" and content["name"] == "stdout":
            self.printed += content["text"]
        elif kind == "display_data" and data.startswith(f"{self.number} "):
            self.shown += _essence(data)
        elif kind != "update_display_data":
            return str(content.get("text") or data or kind)
        return ""

    def wrong(self, hub_killed: bool) -> list[str]:
        """Return what is not as it must be. The hub that follows a killed one does not know what front ends were told
        of a lost kernel, or of an interrupt."""
        counts = {"reply": len(self.replies), "busy": self.states["busy"], "idle": self.states["idle"]}
        most = 1 + (hub_killed and (self.says_ended or self.kind == "interrupt_request"))
        found = [f"{count} {what}" for what, count in counts.items() if not 1 <= count <= most]
        if not self.replies:
            return found
        return found + self._wrong_cell() if self.is_cell else found

    def _wrong_cell(self) -> list[str]:
        reply, found = self.replies[0], []
        due, came = self.printed if self.text is None else self.text, self.printed
        if self.displays:
            due, came = _essence(shown(self.number, self.displays)), self.shown
        if (reply["status"], reply.get("ename", "")) == ("error" if self.error else "ok", self.error):
            found += _difference(came, due)
            if self.errors != [self.error] * bool(self.error):
                found.append(f"errors {self.errors}")
            if self.states["execute_input"] != (self.kind != "silent=True"):
                found.append(f"{self.states['execute_input']} execute_input")
        elif not self.stopped:
            found.append(f"reply {str(reply)[:500]}")
        elif not due.startswith(came):
            found += ["not the beginning", *_difference(came, due)]
        return found


def shown(number: int, n: int) -> str:
    """Return what DISPLAY shows."""
    return f"{number} " + random.Random(number).randbytes(n).hex()


def _essence(data: str) -> str:
    return f"{len(data)} {zlib.crc32(data.encode())} "


def _difference(came: str, due: str) -> list[str]:
    if came == due:
        return []
    lines, wanted = Counter(came.splitlines()), Counter(due.splitlines())
    at = next(
        (i for i, (a, b) in enumerate(zip(came, due, strict=False)) if a != b), min(len(came), len(due))
    )
    here = f"at {at} of {len(due)}: {came[at : at + 60]!r} instead of {due[at : at + 60]!r}"
    return [f"lost {(wanted - lines).total()}, doubled {(lines - wanted).total()} lines, {here}"]
