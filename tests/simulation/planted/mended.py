"""What was wrong once, and was found by a seed."""

from __future__ import annotations

from ..mutants import Mutant

MENDED = [
    Mutant(
        "output is kept for clients of a killed hub, and lost with this one",
        "hub.front_end.edge",
        "        return self._messages is None or self._is_late\n",
        "        return self._size < MAX_UNREAD or self._is_late\n",
    ),
    Mutant(
        "cells with a reply stay in the file after an adoption",
        "hub.front_end.unanswered",
        "            _remove(self._path)\n        self._written = 0\n",
        "            pass\n        self._written = 0\n",
    ),
    Mutant(
        "own code is answered again by the next hub",
        "hub.kernel.messages.relay",
        "self._notice, was_up=was_up)",
        "self._notice)",
    ),
    Mutant(
        "cells of a lost kernel are run by the next one",
        "hub.kernel.messages.relay",
        "        if self.endpoint.state is not EndpointState.OPEN:\n            queued",
        "        if False:\n            queued",
    ),
    Mutant(
        "a front end that leaves takes the files that another one needs",
        "hub.kernel.remote_kernel",
        "        if self._delivered is not None and self.front_ends.complete:\n",
        "        if self._delivered is not None:\n",
    ),
    Mutant(
        "an interrupt that comes late hits the next cell",
        "agent.relay.relay",
        "        return self._state is RelayState.UP and self.busy and not self.waiting_cells\n",
        "        return self._state is RelayState.UP and not self.waiting_cells\n",
    ),
]
