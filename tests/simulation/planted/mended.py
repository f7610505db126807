"""What was wrong once, and was found by a seed."""

from __future__ import annotations

from ..mutants import Mutant

MENDED = [
    Mutant(
        "pieces of a long text come again when a hub was killed between them",
        "hub.front_end.delivered",
        "        return pieces if self.counts and self.counts[lane] == counts[lane] - 1 else 0\n",
        "        return 0\n",
    ),
    Mutant(
        "output is kept for clients of a killed hub, and lost with this one",
        "hub.front_end.edge",
        "        return self.messages is None or self._clock() >= self._deadline\n",
        "        return self.size < MAX_UNREAD or self._clock() > self._deadline\n",
    ),
    Mutant(
        "the file of requests is made empty while one of them has no reply",
        "hub.front_end.delivered",
        "        if self.is_written and not self._sizes:\n",
        "        if self.is_written:\n",
    ),
    Mutant(
        "a front end that leaves takes the files that another one needs",
        "hub.kernel.remote_kernel",
        "self._end.close(forget=self.front_ends.complete)",
        "self._end.close(forget=True)",
    ),
    Mutant(
        "requests of a lost kernel are forgotten before they are answered",
        "hub.kernel.core.request_table",
        "                self._remove(key)\n                self._remember_ended(one.key, Delivery.OUTPUT)\n",
        "                self._forget(one)\n",
    ),
    Mutant(
        "what the keeper says in another lane counts as output that waits",
        "hub.kernel.keeper_connection",
        "end.received, end.lane, pieces,",
        "end.received, type(end.lane).ORDERED, pieces,",
    ),
    Mutant(
        "a shutdown that a killed hub has left ends the restarted kernel",
        "hub.kernel.core.request_table",
        'if one.msg_type == "shutdown_request" and one.repeated and one.waits:',
        "if False:",
    ),
    Mutant(
        "the state of a lost kernel is an older one",
        "hub.kernel.core.kernel_core",
        '        relay.kernel_lost(f"{error.cause}. {error.remedy}")  # which may bring older states\n'
        "        if not life.ended:\n"
        '            life.update(state="ended", cause=error.cause, remedy=error.remedy)\n',
        "        if not life.ended:\n"
        '            life.update(state="ended", cause=error.cause, remedy=error.remedy)\n'
        '        relay.kernel_lost(f"{error.cause}. {error.remedy}")\n',
    ),
    Mutant(
        "messages go to clients that have not connected to the next hub",
        "hub.front_end.edge",
        "        if known:\n",
        "        if False:\n",
    ),
    Mutant(
        "what the next hub shows before clients have subscribed again is lost",
        "hub.front_end.edge",
        "        waits = message.channel is Channel.IOPUB or not self._early.has_room\n",
        "        waits = message.channel is not Channel.IOPUB and not self._early.has_room\n",
    ),
    Mutant(
        "a cell that may have started a kernel is sent to another one",
        "hub.kernel.core.kernel_core",
        "in another one.\n            self.life.set_phase(Phase.RUN)\n",
        "in another one.\n            pass\n",
    ),
    Mutant(
        "a request to a lost kernel waits without a word",
        "hub.kernel.core.kernel_core",
        "        if self.life.lost_cause and",
        "        if False and",
    ),
    Mutant(
        "the next front end gets the replies of one that has left",
        "hub.front_end.front_ends",
        "runtime.random.randrange(1 << (10 if known else 15))",
        "0",
    ),
    Mutant(
        "a kernel that is taken over while it restarts stays ended",
        "hub.kernel.core.kernel_core",
        "                self._restart(host_lost=False)\n",
        "                pass\n",
    ),
    Mutant(
        "a reply to code that was answered before it ran is a repeated one",
        "agent.core.relay",
        "        if None in replies:\n",
        "        if False:\n",
    ),
    Mutant(
        "the text for a new front end is shown in a cell of one that has left",
        "agent.core.relay",
        "        if cell.by_user and not self.reattach.is_orphaned(cell.key):\n",
        "        if cell.by_user:\n",
    ),
    Mutant(
        "an interrupt that comes late hits the next cell",
        "agent.core.relay",
        "        return (self._is_up or self._was_taken_over) and self.busy and waits is None\n",
        "        return self._is_up and waits is None\n",
    ),
    Mutant(
        "an interrupt that arrives with its cell is ignored by the kernel",
        "agent.core.relay",
        "        return (self._is_up or self._was_taken_over) and self.busy and waits is None\n",
        "        return self._is_up and self.busy and self.waiting.first_cell is None\n",
    ),
    Mutant(
        "a cell that comes while the reply of a failed one is held runs",
        "agent.core.relay",
        "if aborts or self.waiting.is_behind_failure(request) or ",
        "if aborts or ",
    ),
    Mutant(
        "a request of which front ends have the idle status gets a second one from the hub",
        "hub.kernel.core.relay",
        "self.send(answer(pending.message, reason, is_idle=pending.is_idle))\n",
        "self.send(answer(pending.message, reason))\n",
    ),
    Mutant(
        "a kernel's files have an id that its front end does not know any more",
        "hub.kernel.remote_kernel",
        "        self._end.rename(kernel_id)  # at once: the front end's process may hear this id next\n",
        "",
    ),
    Mutant(
        "a long text comes in pieces only if it has to wait",
        "hub.kernel.core.pacing",
        "and not self._queue and len(whole) == 1\n",
        "and not self._queue and not pieces\n",
    ),
    Mutant(
        "a cell that was interrupted on its way runs, as its keeper's log was lost",
        "hub.kernel.core.relay",
        '                self.command("cancel", cells=interrupted)\n',
        "                pass\n",
    ),
    Mutant(
        "cells that a kernel may have run before its restart run again, as the log was lost",
        "agent.failover.successor",
        "if not is_same or one.key in self._ended_before]",
        "if one.key in self._ended_before]",
    ),
    Mutant(
        "the states of a request that the keeper has answered wait for a greeting, and are lost with this keeper",
        "agent.core.cell_texts",
        "            return b'_request\"' not in message.parts[1] or b'\"execute_request\"' in message.parts[1]\n",
        "            return True\n",
    ),
    Mutant(
        "a successor without a log forgets the replies that come early",
        "agent.failover.successor",
        "            return self._early_replies.append(message)\n",
        "            pass\n",
    ),
    Mutant(
        "the reply to a cell that the hub names late waits for an idle status that came before",
        "agent.failover.successor",
        "for cell in [one for one in self.core.relay.waiting.line if one.reply is not None]:\n",
        "for cell in []:\n",
    ),
    Mutant(
        "a successor without a log ends a running cell whose interrupt comes again",
        "agent.log.requests",
        "            self._interrupted.clear()\n",
        "            pass\n",
    ),
    Mutant(
        "a successor without a log handles replies before its kernel is up",
        "agent.failover.successor",
        '{"requests", "kernel"}',
        '{"requests"}',
    ),
    Mutant(
        "the statuses of a comm overtake its output while a greeting is shown",
        "agent.core.cell_texts",
        "            return b'_request\"' not in message.parts[1] or b'\"execute_request\"' in message.parts[1]\n",
        "            return b'\"execute_request\"' in message.parts[1]\n",
    ),
    Mutant(
        "a successor without a log does not know which cells the process before has run",
        "agent.failover.successor",
        "if not is_same or one.key in self._ended_before]",
        "if not is_same]",
    ),
    Mutant(
        "the end of a cell comes again that has ended with its kernel",
        "hub.kernel.core.request_table",
        "                self._remember_ended(one.key, Delivery.OUTPUT)\n",
        "",
    ),
    Mutant(
        "a successor without a log takes a reply behind its idle status for a repeated one",
        "agent.log.requests",
        "        return key in self.pending or key in self._idle\n",
        "        return key in self.pending\n",
    ),
    Mutant(
        "the hub names only cells to a successor without a log",
        "hub.kernel.core.relay",
        "one.describe() for one in self.table.sent_on(Channel.SHELL)]",
        "one.describe() for one in self.table.sent_on(Channel.SHELL) if one.is_cell]",
    ),
    Mutant(
        "the log of a successor without a log counts before the hub has named the requests",
        "agent.log.log_file",
        "            if self.state.is_complete:\n",
        "            if True:\n",
    ),
    Mutant(
        "requests on control are not sent again to a successor without a log",
        "hub.kernel.core.relay",
        '                if one.msg_type == "kernel_info_request":  # others must not come twice\n',
        "                if False:\n",
    ),
    Mutant(
        "a successor without a log drops replies on control that come early",
        "agent.failover.successor",
        "message.channel in (Channel.SHELL, Channel.CONTROL)",
        "message.channel is Channel.SHELL",
    ),
    Mutant(
        "the kernel's input of a cell comes behind that of the hub, which has ended the cell",
        "hub.kernel.core.request_table",
        "        is_shown = is_output and b'\"execute_input\"' not in header\n",
        "        is_shown = is_output\n",
    ),
    Mutant(
        "a kernel on one of several hosts is not looked for by the next hub",
        "hub.several_hosts.host_starter",
        "        while remote.must_be_found and not self._knows_place:\n",
        "        while False:\n",
    ),
    Mutant(
        "cells wait for ever for code that was answered before it ran",
        "agent.core.relay",
        "        if parent in self.reattach.answered or self.reattach.is_orphaned(parent):\n",
        "        if parent in self.reattach.answered:\n"
        '            self._log.add("keep", message)\n'
        "        elif self.reattach.is_orphaned(parent):\n",
    ),
    Mutant(
        "a kernel that has ended gives no reply to a kernel_info_request",
        "wire.kernel_messages.answers",
        "            return self.reply(request, self.kernel_info) if self.kernel_info else []\n",
        "            return []\n",
    ),
    Mutant(
        "code that was answered before it ran is forgotten with a killed keeper",
        "agent.core.reattach",
        '        self._log.add("requests.add_answered", cell)\n',
        "",
    ),
    Mutant(
        "front ends that are not back at the next hub yet do not get the replies that it makes",
        "hub.front_end.front_ends",
        "        for message in self._kept if known else ():\n",
        "        for message in ():\n",
    ),
    Mutant(
        "code of a front end itself that waits is not answered when its kernel is not found",
        "hub.kernel.core.kernel_core",
        "in relay.table.answer_own_code(waits=True):",
        "in []:",
    ),
    Mutant(
        "a lost kernel waits for a restart that has come before its shutdown_request",
        "hub.kernel.core.kernel_core",
        "        if life.phase is Phase.RESTART:  # the restart may",
        "        if False:  # the restart may",
    ),
]
