"""Bugs in the start of a kernel on one of several hosts."""

from __future__ import annotations

from ..mutants import Mutant

HOSTS = [
    Mutant(
        "reservations stay when another host has won, or nobody waits any more",
        "hub.several_hosts.host_starter",
        "        for one in reservations:\n            self._tasks.spawn(",
        "        for one in ():\n            self._tasks.spawn(",
    ),
    Mutant(
        "cells that wait for the start get no reply when it is interrupted",
        "hub.kernel.core.kernel_core",
        "        self.relay.send(self.relay.placeholder.end_cells(cells, name, reason))\n",
        "        pass\n",
    ),
    Mutant(
        "cells wait on when the kernel has been started",
        "hub.kernel.core.kernel_core",
        "        self.relay.table.not_started = False\n",
        "        pass\n",
    ),
    Mutant(
        "a kernel that was not started keeps its id",
        "hub.kernel.starter",
        "        remote.undo_start(no_link, settings, self._runtime.new_id()[:12])\n",
        "        remote.undo_start(no_link, settings, remote.kernel_id)\n",
    ),
    Mutant(
        "a host that was out of reach is not tried again",
        "hub.several_hosts.host_wait",
        "            await asyncio.sleep(RECONNECT_AFTER if soon else RETRY_AFTER)\n",
        "            await asyncio.sleep(1e6)\n",
    ),
    Mutant(
        "a cell that waits for the start gets no reply when the kernel is restarted",
        "hub.kernel.core.kernel_core",
        ("and the cells that wait are for the new kernel\n                self._end_cells(*_NOT_STARTED)\n"),
        "\n                self.relay.table.cancel_waiting()\n",
    ),
    Mutant(
        "requests to a host that is lost get no reply when the kernel is restarted",
        "hub.kernel.core.relay",
        "        for pending in self.table.clear(waiting=waiting):\n",
        "        for pending in self.table.clear(waiting=waiting) if waiting else ():\n",
    ),
    Mutant(
        "a message that is dropped is acknowledged after its request is forgotten",
        "hub.kernel.core.relay",
        "            self._save_progress()\n        self.save()  # before it is delivered",
        "            pass\n        self.save()  # before it is delivered",
    ),
    Mutant(
        "a kernel whose hub was killed is looked for by its notebook only",
        "hub.several_hosts.host_starter",
        "ask(remote.settings.replace(id=remote.kernel_id), None)",
        "ask(remote.settings, None)",
    ),
]
