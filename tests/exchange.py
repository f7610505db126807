"""What a front end does over and over while its link breaks, and the count of what comes of it.

`script(front)` is everything that it was shown, in order: two runs must be the same, but for what `compare` finds.
`Tally` hears every message and knows which request got an answer, a busy, an idle too few or too many.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from fronts import Cell, Front, Message
from jupyter_core.utils import ensure_event_loop

Item = tuple[str, str]
"""What came, and what it says: a line of text, a display at its end, a reply's status."""

LINE = "i, '.' * 60"
PRINTS = f"for i in range(400): print({LINE}, flush=i % 20 == 0)"
DISPLAYS = """
from IPython.display import display
handle = display('first', display_id='d')
for i in range(300): print(i, flush=i % 50 == 0); handle.update(i)
for i in range(20): display(i)
display({'text/html': 'z' * 300_000}, raw=True)
"""
ASKS = "print('before'); a = input('a? '); b = input('b? '); print(a, b)"
FAILS = "import sys; print('out'); print('err', file=sys.stderr); 1 / 0"
SLEEPS = "import time; print('asleep', flush=True); time.sleep(600)"
STORM = f"import time\nfor i in range(5000): print({LINE})\ntime.sleep(600)"
WIDGET = """
def opened(comm, message):
    def count(message):
        for n in range(message['content']['data']['count']):
            comm.send({'n': n})
            comm.send({'method': 'update', 'state': {'value': n}})
    comm.on_msg(count)
get_ipython().kernel.comm_manager.register_target('counter', opened)
"""


def script(front: Front) -> list[Item]:
    """Of display updates, and of a widget's states, that wait somewhere only the last is sent."""
    seen: list[Item] = []
    for step in (_queued, _cells, _sleeper, _storm, _widget):
        seen += ((f"{step.__name__} {kind}", what) for kind, what in step(front))
    return seen


def _queued(front: Front) -> Iterator[Item]:
    """Cells sent without waiting for replies."""
    for request in [front.client.execute(code) for code in (PRINTS, "6 * 7", "print('last')")]:
        yield from _items(front.finish(request))


def _cells(front: Front) -> Iterator[Item]:
    yield from _items(front.run(DISPLAYS))
    yield from _items(front.run(ASKS, answers=["x", "y"]))
    yield from _items(front.run(FAILS))


def _sleeper(front: Front) -> Iterator[Item]:
    request = front.client.execute(SLEEPS)
    yield "begin", front.until_text(request, "asleep\n")
    yield "interrupt", front.control("interrupt_request")["status"]
    yield from _items(front.finish(request))


def _storm(front: Front) -> Iterator[Item]:
    """Interrupted somewhere: what came is the beginning of all it would print."""
    request = front.client.execute(STORM)
    text = front.until_text(request, "\n100 ")
    yield "interrupt", front.control("interrupt_request")["status"]
    cell = front.finish(request)
    text += "".join(printed for kind, printed in cell.outputs if kind == "stdout")
    whole = "".join(f"{i} {'.' * 60}\n" for i in range(text.count("\n") + 1))
    for number, line in enumerate(whole[: len(text)].splitlines(True)[:100]):
        yield "stdout", line if text.splitlines(True)[number] == line else "another line"
    yield "all of it", str(whole.startswith(text))
    yield from (item for item in _items(cell) if item[0] != "stdout")


def _widget(front: Front) -> Iterator[Item]:
    yield from _items(front.run(WIDGET))
    comm, value = uuid.uuid4().hex, -1
    requests = [
        front.ask("shell", "comm_open", comm_id=comm, target_name="counter", data={}),
        front.ask("shell", "comm_msg", comm_id=comm, data={"count": 100}),
        front.ask("shell", "comm_close", comm_id=comm, data={}),
    ]
    for request in requests:
        for message in front.iopub(request):
            data = message["content"].get("data", {})
            if "state" not in data:
                yield message["msg_type"], str(data or message["content"].get("execution_state"))
            elif data["state"]["value"] <= value:
                yield "an older state", str(data)
            else:
                value = data["state"]["value"]
    yield "value", str(value)


def _items(cell: Cell) -> Iterator[Item]:
    yield "reply", str(cell.reply["status"])
    for kind, printed in cell.shown:
        if (kind, printed) == ("display_data", {"text/plain": ""}):
            continue  # the notice of an outage of over 3 s, which is made empty at its end
        if kind in ("stdout", "stderr"):
            yield from ((kind, line) for line in printed.splitlines(True))
        else:
            yield kind, str(printed)


class Outcome(NamedTuple):
    """How many items; empty: all is well."""

    lost: int
    doubled: int
    disordered: int

    @classmethod
    def of(cls, seen: list[Item], expected: list[Item]) -> Outcome:
        """Disordered are those of one place in the script that are not where they should be."""
        lost, doubled = Counter(expected) - Counter(seen), Counter(seen) - Counter(expected)
        both = Counter(expected) & Counter(seen)
        came, due = (_only(items, both) for items in (seen, expected))
        return cls(lost.total(), doubled.total(), sum(a != b for a, b in zip(came, due, strict=True)))


def _only(items: list[Item], wanted: Counter[Item]) -> list[Item]:
    left, found = Counter(wanted), []
    for item in items:
        if left[item]:
            left[item] -= 1
            found.append(item)
    return found


class Tally:
    """How often each request was answered, and the kernel became busy and idle for it."""

    def __init__(self) -> None:
        self.messages = 0
        self._requests: dict[str, Message] = {}
        self._came: Counter[tuple[str, str]] = Counter()

    def __call__(self, message: Message) -> None:
        """One more message."""
        self.messages += 1
        parent = message["parent_header"]
        if "msg_id" in parent:
            self._requests[parent["msg_id"]] = parent
            kind = message["content"].get("execution_state") or message["msg_type"]
            self._came[parent["msg_id"], kind] += 1

    def wrong(self, session: str) -> list[str]:
        """What came too seldom or too often; replies are looked for to the requests of one session."""
        found = []
        for request, header in self._requests.items():
            kind, own = header["msg_type"].removesuffix("_request"), header["session"] == session
            if own and kind == "kernel_info":
                continue  # asked again and again until the front end was ready, which is not all heard
            due = ["busy", "idle", *([f"{kind}_reply"] if own and not kind.startswith("comm_") else [])]
            counts = {what: self._came[request, what] for what in due}
            if kind == "kernel_info":  # its idle status is repeated for clients that subscribe late
                counts["idle"] = min(counts["idle"], 1)
            if set(counts.values()) != {1} or self._came[request, "execute_input"] > 1:
                found.append(f"{kind}: {counts}")
        return found


class Bystander:
    """A second front end, which asks on and on for what needs no cell."""

    def __init__(self, connection: dict[str, Any]) -> None:
        self.tally = Tally()
        self._front = Front(connection, self.tally)
        self._enough = threading.Event()
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Bystander:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._enough.set()
        self._thread.join()
        self._front.__exit__()
        if self._fault is not None:
            raise self._fault

    @property
    def wrong(self) -> list[str]:
        """Its own requests that were not answered once."""
        replies: Counter[str] = Counter()
        for (request, _), count in self.tally._came.items():
            replies[request] += count
        return [f"{count} answers to {request}" for request, count in replies.items() if count != 1]

    def _run(self) -> None:
        try:
            while not self._enough.wait(0.2):  # at leisure, as people type
                client = self._front.client
                for request in (client.kernel_info(), client.complete("pri", 3)):
                    self._front.reply(request)
        except Exception as error:  # told when it ends
            self._fault = error
        finally:
            ensure_event_loop().close()  # jupyter_client made it for this thread
