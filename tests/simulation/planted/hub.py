"""Bugs in the hub."""

from __future__ import annotations

from ..mutants import Mutant

HUB = [
    Mutant(
        "the hub writes all that it has at once",
        "hub.node.attachments",
        "        while stream is not None and self._ready and stream.has_room():\n",
        "        while stream is not None and self._ready:\n",
    ),
    Mutant(
        "messages are passed on before those that wait",
        "hub.kernel.core.pacing",
        "        at_once = self._pace is _Pace.LIVE and not self._queue and len(whole) == 1\n",
        "        at_once = self._pace is _Pace.LIVE and len(whole) == 1\n",
    ),
    Mutant(
        "a front end that does not read is sent more",
        "hub.kernel.core.pacing",
        "        if not has_room:\n",
        "        if False:\n",
    ),
    Mutant(
        "the pacer's progress is not acknowledged",
        "hub.kernel.remote_kernel",
        "            self.link.pump(self.endpoint)  # what was passed on is acknowledged\n",
        "",
    ),
    Mutant(
        "a replay never ends",
        "hub.kernel.core.pacing",
        "        self._pace = _Pace.LIVE\n        self.look_at = 0.0 if self._queue else None\n",
        "        self.look_at = 0.0 if self._queue else None\n",
    ),
    Mutant(
        "the pacer's timer runs on",
        "hub.kernel.core.pacing",
        "        self.waiting_by_lane, self._size, self.look_at = [0 for _ in Lane], 0, None\n",
        "        self.waiting_by_lane, self._size = [0 for _ in Lane], 0\n",
    ),
    Mutant(
        "deferred requests are lost when the link is up",
        "hub.kernel.core.request_table",
        "        return [one for one in self._requests.values() if one.waits and not self._waits(one.message)]\n",
        "        return [one for one in self._requests.values() if one.waits and not self._waits(one.message)][1:]\n",
    ),
    Mutant(
        "deferred requests are sent and kept",
        "hub.kernel.core.request_table",
        "            pending.waits = False\n",
        "            pass\n",
    ),
    Mutant(
        "an interrupt does not cancel the cells that wait",
        "hub.kernel.core.request_table",
        "        cells = self.waiting_cells\n        for cell in cells:\n",
        "        cells = self.waiting_cells[:0]\n        for cell in cells:\n",
    ),
    Mutant(
        "an interrupt that was lost is not answered",
        "hub.kernel.core.relay",
        (
            "        for pending in answered:\n"
            "            self.send(self.placeholder.acknowledge(pending.message, is_idle=pending.is_idle))\n"
        ),
        "",
    ),
    Mutant(
        "an interrupt that was lost ends cells that were sent after it",
        "hub.kernel.core.request_table",
        "for one in requests[: requests.index(interrupts[-1])] if one.is_cell",
        "for one in requests if one.is_cell",
    ),
    Mutant(
        "an interrupt is answered here and by the kernel",
        "hub.kernel.core.request_table",
        "            pending.delivery = Delivery.NOTHING\n            self._forget(pending)\n",
        "            self._forget(pending)\n",
    ),
    Mutant(
        "a cell with a reply stays in flight",
        "hub.kernel.core.request_table",
        "        self._forget(pending)\n\n    def _received_question",
        "\n    def _received_question",
    ),
    Mutant(
        "a request that is no cell is lost with a killed hub",
        "hub.kernel.core.request_table",
        "            pending.waits = pending.waits or not pending.is_cell\n",
        "",
    ),
    Mutant(
        "the killed hub's cells are not recalled",
        "hub.kernel.remote_kernel",
        "events.Recalled(self._end.requests.recall())",
        "events.Recalled(self._end.requests.recall() and [])",
    ),
    Mutant(
        "a failure is not acknowledged",
        "hub.kernel.core.relay",
        "            self._report_failure_seen(failed)\n",
        "            pass\n",
    ),
    Mutant(
        "counts are saved before the message is sent",
        "hub.kernel.keeper_connection",
        "            self._delivered.save(self.endpoint.delivered, pieces or self._delivered.pieces)\n",
        "            self._delivered.save([count + 1 for count in self.endpoint.delivered])\n",
    ),
    Mutant(
        "counts are never saved",
        "hub.kernel.keeper_connection",
        "            self._delivered.save(self.endpoint.delivered, pieces or self._delivered.pieces)\n",
        "            pass\n",
    ),
    Mutant(
        "a lost kernel's cells get no reply",
        "hub.kernel.core.relay",
        "            self.send(answer(pending.message, reason, is_idle=pending.is_idle))\n",
        "            pass\n",
    ),
    Mutant(
        "what a lost kernel has sent comes after the errors",
        "hub.kernel.core.relay",
        "        self.flush()  # before their replies, whether it is read or not\n",
        "        self.pacer.end_replay()\n",
    ),
    Mutant(
        "an interrupt that was answered is answered again with an error",
        "hub.kernel.core.request_table",
        "            pending.delivery = Delivery.NOTHING\n            self._forget(pending)\n",
        "            self._set_delivery(pending, Delivery.ALL)\n",
    ),
    Mutant(
        "a released kernel stays attached",
        "hub.node.attachments",
        (
            "                del self._entries[number]\n"
            "                attachment.endpoint.closed()\n"
            "                self._write(Frame(Kind.CLOSE, number))\n"
        ),
        "                attachment.endpoint.closed()\n",
    ),
    Mutant(
        "an attachment is not opened again",
        "hub.node.attachments",
        "        asyncio.get_running_loop().call_later(delay, self._open_if_pending, number)\n",
        "        pass\n",
    ),
    Mutant(
        "a dead link is not noticed",
        "hub.node.link",
        "            if remaining <= 0:\n",
        "            if False:\n",
    ),
    Mutant(
        "another front end's client gets the reply",
        "hub.front_end.front_ends",
        "        for front in self._recipients(message):\n            front.send(message)\n",
        "        for front in list(self._front_ends.values())[:1]:\n            front.send(message)\n",
    ),
]
