"""Bugs in the keeper and its successor."""

from __future__ import annotations

from ..mutants import Mutant

KEEPER = [
    Mutant(
        "the hub that is replaced stays",
        "agent.keeper.server",
        (
            "        if self._hub is not None:\n"
            "            self.disconnected(self._hub)\n"
            "        self._hub = connection\n"
        ),
        (
            "        if self._hub is not None:\n"
            "            self._hub.close()\n"
            "        self._hub = connection\n"
        ),
    ),
    Mutant(
        "output overtakes what waits",
        "agent.relay.output.backlog",
        "            waits = bool(self._backlog) or not (self._attached and self._has_room)\n",
        "            waits = not (self._attached and self._has_room)\n",
    ),
    Mutant(
        "a replay is never over",
        "agent.relay.output.backlog",
        ('            self._replay = False\n            self._mark("end")\n'),
        "            self._replay = False\n",
    ),
    Mutant(
        "one message is lost where memory ends",
        "agent.relay.output.backlog",
        ("                records.append(self._memory.pop())\n            self._spill.put(records)\n"),
        (
            "                records.append(self._memory.pop())\n"
            "            self._spill.put(records[1:] if len(records) > 8 else records)\n"
        ),
    ),
    Mutant(
        "text is merged over a display",
        "agent.relay.output.memory_queue",
        ("        cell.last = None\n        if entry.kind is EntryKind.DISPLAY:\n"),
        "        if entry.kind is EntryKind.DISPLAY:\n",
    ),
    Mutant(
        "a long text loses what does not fit",
        "agent.relay.output.memory_queue",
        ("            at += size\n            if entry.text.size >= PIECE:\n"),
        ("            at += size + 1\n            if entry.text.size >= PIECE:\n"),
    ),
    Mutant(
        "a reply does not wait for its output",
        "agent.relay.requests",
        "        if parent in self._idle or not known:\n",
        "        if True:\n",
    ),
    Mutant(
        "a held reply is forgotten when the kernel ends",
        "agent.relay.relay",
        ("        for reply in self.executions.take_held():\n            self._send_all([reply])\n"),
        ("        for reply in self.executions.take_held():\n            self._send_all([])\n"),
    ),
    Mutant(
        "cells behind a failed one run",
        "agent.relay.requests",
        "        return request.client in self._failed or request.msg_id in self._interrupted\n",
        "        return request.msg_id in self._interrupted\n",
    ),
    Mutant(
        "cells that were interrupted on their way run",
        "agent.relay.requests",
        "        return request.client in self._failed or request.msg_id in self._interrupted\n",
        "        return request.client in self._failed\n",
    ),
    Mutant(
        "a failure is remembered for ever",
        "agent.relay.requests",
        (
            "        self._failed = {client: failed for client, failed in self._failed.items() if failed != msg_id}\n"
        ),
        "        pass\n",
    ),
    Mutant(
        "requests that came early are lost",
        "agent.relay.relay",
        ("        for request in early:\n            self.handle_request(request)\n\n    def kernel_gone"),
        (
            "        for request in early[1:]:\n"
            "            self.handle_request(request)\n"
            "\n"
            "    def kernel_gone"
        ),
    ),
    Mutant(
        "requests to an ended kernel are not refused",
        "agent.relay.relay",
        ("            self.executions.refuse(request, self._end_reason)  # the keeper ends a process"),
        "            pass  # the keeper ends a process",
    ),
    Mutant(
        "cells of an ended kernel get no reply",
        "agent.relay.relay",
        ("        self.executions.fail_all(reason)\n        self.gpus.fail_all_cells"),
        "        self.gpus.fail_all_cells",
    ),
    Mutant(
        "cells of the new front end do not wait for the old one's",
        "agent.relay.relay",
        "        if self.reattach.must_wait(self.executions.pending_ids(), waiting):\n",
        "        if False:\n",
    ),
    Mutant(
        "cells that wait for the old front end's wait for ever",
        "agent.relay.relay",
        (
            "            for request in self.reattach.take_deferred():\n"
            "                self._pass_gate(request)\n"
        ),
        "            pass\n",
    ),
    Mutant(
        "what the old front end's cells print comes to the new one",
        "agent.relay.reattach",
        "        return msg_id in self._orphaned\n",
        "        return False\n",
    ),
    Mutant(
        "what a greeting holds back is lost",
        "agent.relay.reattach",
        ("        for lane, message in self.withdraw():\n            self._to_hub(lane, message)\n"),
        "        self.withdraw()\n",
    ),
    Mutant(
        "the kernel is started although its end was requested",
        "agent.keeper.keeper",
        (
            "        if request in (EndRequest.SHUTDOWN, EndRequest.JOB_OVER):\n"
            "            return self._leave()\n"
        ),
        ("        if request in (EndRequest.JOB_OVER,):\n            return self._leave()\n"),
    ),
    Mutant(
        "the kernel is not killed for a restart",
        "agent.keeper.keeper",
        (
            "        self.relay.kernel_restarting()\n"
            "        self.ready.reset()\n"
            "        self.kernel.signal_group(signal.SIGKILL)\n"
        ),
        ("        self.relay.kernel_restarting()\n        self.ready.reset()\n"),
    ),
    Mutant(
        "a hub's list of cells is ignored by the keeper",
        "agent.keeper.keeper",
        (
            "        for cell in self.received_cells.missing(read_unanswered(command), self.relay.unanswered_ids()):\n"
            "            self._from_hub(cell)\n"
        ),
        "        pass\n",
    ),
    Mutant(
        "a hub's list makes cells run again",
        "agent.relay.received_cells",
        "        return [cell.request for cell in cells[known[-1] + 1 if known else 0 :]]\n",
        "        return [cell.request for cell in cells[known[-1] if known else 0 :]]\n",
    ),
    Mutant(
        "a successor runs what the kernel has begun",
        "agent.failover.inherited_cells",
        "        if not began:\n",
        "        if True:\n",
    ),
    Mutant(
        "a successor does not hold cells back",
        "agent.failover.inherited_cells",
        ("        self._held.append(request.unparsed())\n        return True\n"),
        "        return False\n",
    ),
    Mutant(
        "a successor forgets the cells it held",
        "agent.failover.inherited_cells",
        ("            self._cells += held\n            self._held = []\n"),
        "            self._held = []\n",
    ),
    Mutant(
        "a successor does not ask twice",
        "agent.failover.inherited_cells",
        "            if quiet_now < QUIET_REPLIES:\n",
        "            if not begun:\n",
    ),
    Mutant(
        "a successor answers cells that it has answered",
        "agent.failover.inherited_cells",
        "            self._replied.add(message.parent_id)  # else",
        "            pass  # else",
    ),
    Mutant(
        "a successor numbers its messages as the killed keeper did",
        "agent.failover.successor",
        "        self.server.endpoint.outbox.count_from(int(self.loop.runtime.time()) << 20)\n",
        "",
    ),
    Mutant(
        "output that a killed keeper had is lost without a word",
        "agent.failover.lost_output",
        '        elif state == "idle" or self._inherited is not None:\n',
        "        elif False:\n",
    ),
]
