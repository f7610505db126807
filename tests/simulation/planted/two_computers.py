"""Bugs in what happens when another computer takes a kernel."""

from __future__ import annotations

from ..mutants import Mutant

TWO_COMPUTERS = [
    Mutant(
        "requests to a kernel that another computer has get no reply",
        "hub.kernel.core.placeholder",
        "        return [*self._answers.fail(request, name, reason, is_idle=is_idle), *self._repeated_busy()]\n",
        "        return []\n",
    ),
    Mutant(
        "requests get no reply when a kernel that had ended is lost",
        "hub.kernel.core.kernel_core",
        "            life.error = error\n"
        '        relay.kernel_lost(f"{error.cause}. {error.remedy}")  # which may bring older states\n',
        "            life.error = error\n"
        '            relay.kernel_lost(f"{error.cause}. {error.remedy}")  # which may bring older states\n',
    ),
    Mutant(
        "cells get no reply when their kernel is taken",
        "hub.kernel.core.relay",
        '        self._answer_unanswered(self.placeholder.deny, f"{by}. {remedy}", waiting=True)\n',
        "        pass\n",
    ),
    Mutant(
        "a kernel that was taken while it was busy stays busy",
        "hub.kernel.core.relay",
        '            self.send(self.placeholder.show_state("idle"))\n',
        "            pass\n",
    ),
    Mutant(
        "a restart that was requested before the kernel was taken is still to come",
        "hub.kernel.core.life",
        "        if self.phase not in (Phase.STOP, Phase.CLOSED):\n            self.set_phase(Phase.RUN)\n",
        "",
    ),
    Mutant(
        "a cell does not take the kernel back",
        "hub.kernel.remote_kernel",
        '        self.open_arguments = {"attach": {}}  # so the keeper greets the front end\n',
        "        self.open_arguments = {}\n",
    ),
    Mutant(
        "a hub that connects again takes the kernel back",
        "hub.kernel.remote_kernel",
        '        """The stream to the keeper is open, for the first time or after an outage."""\n'
        "        self.open_arguments = {}\n",
        '        """The stream to the keeper is open, for the first time or after an outage."""\n',
    ),
    Mutant(
        "a kernel that was taken is taken back with the endpoint of before",
        "hub.kernel.remote_kernel",
        "        self.attach_timing.release()\n"
        "        self._use_kernel(self.kernel_id)\n"
        "        self.attach_timing.attach()\n",
        "        self.attach_timing.release()\n        self.attach_timing.attach()\n",
    ),
    Mutant(
        "a computer from which the kernel was taken since it asked for the owner attaches",
        "agent.keeper.server",
        "            if owner and hello.owner and owner != hello.owner:\n",
        "            if False:\n",
    ),
]
