"""Bugs in the wire."""

from __future__ import annotations

from ..mutants import Mutant

WIRE = [
    Mutant(
        "acknowledges what still waits",
        "wire.stream.endpoint",
        "return min(self._inbox.received, self._held - 1) if self._held else",
        "return self._inbox.received if self._held else",
    ),
    Mutant(
        "acknowledges one too much of what waits",
        "wire.stream.endpoint",
        "min(self._inbox.received, self._held - 1)",
        "min(self._inbox.received, self._held)",
    ),
    Mutant(
        "the resume begins one number too late",
        "wire.stream.queues",
        ("        self._window.reset()\n        self.acknowledge(received)\n"),
        ("        self._window.reset()\n        self.acknowledge(min(received + 1, self._number))\n"),
    ),
    Mutant(
        "chunks after a drop are not sent again",
        "wire.stream.queues",
        ("        self._resend = self._sent + self._resend\n        self._sent = deque()\n"),
        ("        self._resend = deque()\n        self._sent = deque()\n"),
    ),
    Mutant(
        "chunks that are sent again change their order",
        "wire.stream.queues",
        "        self._resend = self._sent + self._resend\n",
        "        self._resend = deque(reversed(self._sent + self._resend))\n",
    ),
    Mutant(
        "a requeued chunk keeps its offset",
        "wire.stream.queues",
        ("            entry.offset -= size\n            self._in_flight -= len(chunk.payload)\n"),
        "            self._in_flight -= len(chunk.payload)\n",
    ),
    Mutant(
        "a requeued message goes behind the others",
        "wire.stream.queues",
        ("                self._lanes[entry.lane].appendleft(entry)\n            entry.offset -= size\n"),
        ("                self._lanes[entry.lane].append(entry)\n            entry.offset -= size\n"),
    ),
    Mutant(
        "the count of delivered messages is one too low",
        "wire.stream.queues",
        "            while queue and queue[0].serial < serial:\n",
        "            while queue and queue[0].serial + 1 < serial:\n",
    ),
    Mutant(
        "the count of delivered messages is one too high",
        "wire.stream.queues",
        "            while queue and queue[0].serial < serial:\n",
        "            while queue and queue[0].serial <= serial:\n",
    ),
    Mutant(
        "the order of messages turns around for another hub",
        "wire.stream.queues",
        "        for entry in reversed(list(entries.values())):\n",
        "        for entry in list(entries.values()):\n",
    ),
    Mutant(
        "a chunk that comes twice is taken twice",
        "wire.stream.queues",
        ("        if number <= self.received:\n            return None\n"),
        (
            "        if number < self.received:\n"
            "            return None\n"
            "        self.received = min(self.received, number - 1)\n"
        ),
    ),
    Mutant(
        "an acknowledged message counts on",
        "wire.stream.queues",
        ("                if chunk.flags & _LAST:\n                    self.size -= len(entry.data)\n"),
        ("                if False:\n                    self.size -= len(entry.data)\n"),
    ),
    Mutant(
        "acknowledgements alone are forgotten",
        "wire.stream.endpoint",
        "        self._acknowledge_now = self._acknowledged < min(self._overdue, self._acknowledgeable)\n",
        "        self._acknowledge_now = False\n",
    ),
    Mutant(
        "a HELLO does not say what was received",
        "wire.stream.endpoint",
        "        self._acknowledged = self._acknowledgeable  # by this HELLO\n",
        "        self._acknowledged = 0  # by this HELLO\n",
    ),
    Mutant(
        "another hub resumes the numbering of the one before",
        "wire.stream.endpoint",
        (
            "        return hello.peer == self._session and bool(hello.session == self.peer or hello.received)\n"
        ),
        "        return hello.peer == self._session or not hello.peer\n",
    ),
    Mutant(
        "a request is busy twice",
        "wire.kernel_messages.answers",
        "        if request.key in self._busy:\n",
        "        if False:\n",
    ),
    Mutant(
        "an answered request never becomes idle",
        "wire.kernel_messages.answers",
        '        return [status(self._runtime, "idle", request.parts[0])]\n',
        "        return []\n",
    ),
]
