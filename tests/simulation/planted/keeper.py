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
        "a reply does not wait for its output",
        "agent.core.waiting",
        "        if cell is not None and not cell.is_idle:\n",
        "        if False:\n",
    ),
    Mutant(
        "a held reply is forgotten when the kernel ends",
        "agent.core.relay",
        "                self._send([one.reply, *self.answers.end(one.request)])\n",
        "                self._send(self.answers.end(one.request))\n",
    ),
    Mutant(
        "cells behind a failed one run",
        "agent.log.requests",
        "        return request.client in self._failed or request.msg_id in self._interrupted\n",
        "        return request.msg_id in self._interrupted\n",
    ),
    Mutant(
        "cells that were interrupted on their way run",
        "agent.log.requests",
        "        return request.client in self._failed or request.msg_id in self._interrupted\n",
        "        return request.client in self._failed\n",
    ),
    Mutant(
        "a failure is remembered for ever",
        "agent.log.requests",
        (
            "        self._failed = {client: failed for client, failed in self._failed.items() if failed != msg_id}\n"
        ),
        "        pass\n",
    ),
    Mutant(
        "requests that came early are lost",
        "agent.core.relay",
        "        for one in self.waiting.take(Reason.KERNEL):\n",
        "        for one in self.waiting.take(Reason.KERNEL)[1:]:\n",
    ),
    Mutant(
        "requests to an ended kernel are not refused",
        "agent.core.relay",
        "            self._send(self.answers.refuse(request, _DEAD, self._end_reason))\n",
        "            pass\n",
    ),
    Mutant(
        "cells of an ended kernel get no reply",
        "agent.core.relay",
        "        self._fail(Reason.REPLY, _DEAD, reason)\n",
        "",
    ),
    Mutant(
        "cells of the new front end do not wait for the old one's",
        "agent.core.waiting",
        "        if cell.place in self._orphaned:\n",
        "        if True:\n",
    ),
    Mutant(
        "cells that wait for the old front end's wait for ever",
        "agent.core.relay",
        "            self.resume(Reason.FORMER_CELLS)\n",
        "            pass\n",
    ),
    Mutant(
        "what the old front end's cells print comes to the new one",
        "agent.core.reattach",
        "        return key in self._log.state.requests.orphaned\n",
        "        return False\n",
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
            "        self.handle(events.KernelRestarting())\n"
            "        self.requests.reset()\n"
            "        self.kernel.signal_group(signal.SIGKILL)\n"
        ),
        ("        self.handle(events.KernelRestarting())\n        self.requests.reset()\n"),
    ),
    Mutant(
        "output overtakes what waits",
        "agent.core.log",
        "            waits = self.state.messages_wait or not (self._is_attached and self._room > 0)\n",
        "            waits = not (self._is_attached and self._room > 0)\n",
    ),
    Mutant(
        "a replay is never over",
        "agent.core.log",
        ('            self._replays = False\n            self._mark("end")\n'),
        "            self._replays = False\n",
    ),
    Mutant(
        "one message is lost where memory ends",
        "agent.log.hub_queue",
        "        self.segments.put(oldest)\n",
        "        self.segments.put(oldest[1:] if len(oldest) > 8 else oldest)\n",
    ),
    Mutant(
        "text is merged over a display",
        "agent.log.waiting",
        ("        cell.last = None\n        if entry.kind is EntryKind.DISPLAY:\n"),
        "        if entry.kind is EntryKind.DISPLAY:\n",
    ),
    Mutant(
        "a long text loses what does not fit",
        "agent.log.waiting",
        ("            at += size\n            if entry.text.size >= PIECE:\n"),
        ("            at += size + 1\n            if entry.text.size >= PIECE:\n"),
    ),
    Mutant(
        "the log is written after what it says was sent",
        "agent.keeper.server",
        ("        self.runner.log_file.flush()  # before the hub gets messages and acknowledgements\n"),
        "        pass\n",
    ),
    Mutant(
        "a request has its answer before the log's file",
        "agent.keeper.server",
        "        self.runner.log_file.flush()  # before the client acts on what was done\n",
        "        pass\n",
    ),
    Mutant(
        "the kernel gets a request before the log's file",
        "agent.keeper.keeper",
        "        self.runner.log_file.flush()  # before the kernel gets a request\n",
        "        pass\n",
    ),
    Mutant(
        "a checkpoint forgets requests without a reply",
        "agent.log.log_file",
        "            checkpoint = pickle.dumps((self.state, self.queue), pickle.HIGHEST_PROTOCOL)\n",
        (
            "            requests, self.state.requests = self.state.requests, type(self.state.requests)()\n"
            "            checkpoint = pickle.dumps((self.state, self.queue), pickle.HIGHEST_PROTOCOL)\n"
            "            self.state.requests = requests\n"
        ),
    ),
    Mutant(
        "a checkpoint forgets what waits for the hub",
        "agent.log.log_file",
        "            checkpoint = pickle.dumps((self.state, self.queue), pickle.HIGHEST_PROTOCOL)\n",
        (
            "            lanes, self.state.lanes = self.state.lanes, [type(lane)() for lane in self.state.lanes]\n"
            "            checkpoint = pickle.dumps((self.state, self.queue), pickle.HIGHEST_PROTOCOL)\n"
            "            self.state.lanes = lanes\n"
        ),
    ),
    Mutant(
        "a successor numbers its messages anew",
        "agent.keeper.server",
        "            self.endpoint.outbox.restore(lane, state.serials[lane], state.lanes[lane])\n",
        "            pass\n",
    ),
    Mutant(
        "a successor passes on what the kernel repeats",
        "agent.core.relay",
        "        if self._was_taken_over and not is_keepers_own(message) and self._drop_repeated(message, parent):\n",
        "        if False:\n",
    ),
    Mutant(
        "a successor sends no request again",
        "agent.core.relay",
        "            self._send_again()\n",
        "            pass\n",
    ),
    Mutant(
        "a successor forgets requests that were not sent to the kernel",
        "agent.core.relay",
        "            self.waiting.add(pending.request, Reason.KERNEL)\n",
        "            pass\n",
    ),
    Mutant(
        "a successor ignores the kernel's last replies",
        "agent.failover.successor",
        "                self._from_kernel(Message(channel, int(client), tuple(part.encode() for part in parts)))\n",
        "                pass\n",
    ),
    Mutant(
        "a hub lets a successor acknowledge what it has not passed on",
        "hub.kernel.core.relay",
        "            self.pacer.keeper_changed()\n",
        "",
    ),
    Mutant(
        "a request that comes again is handled again",
        "agent.core.log",
        "        is_new = not self.state.requests.was_received(message)\n",
        "        is_new = True\n",
    ),
]
