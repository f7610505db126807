"""Kernels with several hosts: which other host has the notebook's kernel, where one is created anew when its host or
its GPUs are lost, and the wait for GPUs on all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from pathlib import Path
from typing import Any

from ...errors import GpuKernelError
from ...wire.runtime import Runtime
from ..background import BackgroundTasks
from ..kernel.remote_kernel import RemoteKernel
from ..kernel.states import LinkState
from ..kernel_settings import KernelSettings
from ..node.node import Node
from ..node.nodes import Nodes
from ..paths import hub_folder
from ..rpc import Call
from .placement import Placement
from .shared_wait import SharedWait, end_kernel

ASK_WITHIN = 10.0
"""Seconds for a host to answer whether it has a kernel, or its GPUs."""
DROP_WITHIN = 5.0
"""Seconds in which a link may come back before a restart chooses another host."""


class Relocation:
    """Call `watch` with each new kernel."""

    def __init__(
        self,
        runtime: Runtime,
        nodes: Nodes,
        placement: Placement,
        owner: dict[str, str],
        log: logging.Logger,
    ) -> None:
        """`owner`: this user and computer, for requests to agents."""
        self._runtime = runtime
        self._nodes = nodes
        self._placement = placement
        self._owner = owner
        self._log = log
        self._waits: weakref.WeakSet[SharedWait] = weakref.WeakSet()
        self._tasks = BackgroundTasks()

    @property
    def reserved(self) -> dict[str, str]:
        """The ids of all reservations, which are no kernels of their own, and of the kernels that wait by them."""
        return {one: kernel_id for wait in self._waits for one, kernel_id in wait.reserved.items()}

    def delivered(self, settings: KernelSettings, kernel_id: str) -> Path:
        """Return the file for the counts of a kernel."""
        return hub_folder() / "delivered" / self._nodes.of(settings).digest / kernel_id

    def watch(self, remote: RemoteKernel) -> None:
        """Wait for GPUs on all hosts when a cell of this kernel waits, until the kernel is closed."""
        wait = SharedWait(
            self._runtime, self._nodes, self._owner, remote, self.delivered, self._tasks.spawn, self._log
        )
        self._waits.add(wait)
        remote.on_create = lambda: self._place(remote, remote.settings, restart=False)
        if len(remote.settings.each_host()) > 1:
            remote.on_host_lost = lambda: self._host_lost(remote, wait)
        self._tasks.spawn(wait.run())

    async def restart(self, remote: RemoteKernel, call: Call) -> None:
        """Restart the kernel: on its host, unless that or its GPUs are lost, and there are others."""
        if len(remote.settings.each_host()) < 2 or not await self._is_lost(remote):
            return remote.restart()
        settings = await self._placement.choose(remote.settings, call, self._owner)
        link, kernel_id = remote.link, remote.kernel_id
        self._place(remote, settings, restart=True)
        self._tasks.spawn(end_kernel(link, kernel_id, "restarted on another host"))

    async def find_elsewhere(self, remote: RemoteKernel, wanted: dict[str, Any]) -> bool:
        """Give the front ends the kernel that their notebook has left on another host. Return whether there is one."""
        current = self._nodes.of(remote.settings)
        others = [one for one in remote.settings.as_given().each_host() if self._nodes.of(one) is not current]
        found = [
            one for one in await asyncio.gather(*(self._ask_left(one, wanted) for one in others)) if one[0]
        ]
        if not found:
            return False
        _, node, settings = max(found, key=lambda one: one[0])
        try:
            answer = await node.request(
                None, None, "take_detached", ASK_WITHIN, **wanted | {"attached_ids": node.kernel_ids}
            )
            link = await node.link(node.python, None)
        except GpuKernelError:
            return False
        if not answer.get("kernel") or not len(remote.front_ends):
            return False
        settings = settings.placed(node.python)
        kernel_id = str(answer["kernel"])
        remote.relocate(link, settings, self.delivered(settings, kernel_id))
        remote.switch(kernel_id)
        return True

    async def _ask_left(
        self, settings: KernelSettings, wanted: dict[str, Any]
    ) -> tuple[float, Node, KernelSettings]:
        """Return when the kernel was started that the notebook has left on that host; 0 if there is none."""
        node = self._nodes.of(settings)
        try:
            more = {**wanted, "gpus": 0, "attached_ids": node.kernel_ids}
            answer = await asyncio.wait_for(
                node.request(settings.python, None, "offer", ASK_WITHIN, **more), ASK_WITHIN
            )
        except (GpuKernelError, asyncio.TimeoutError):
            return 0.0, node, settings
        return float(answer.get("detached") or 0), node, settings

    async def _is_lost(self, remote: RemoteKernel) -> bool:
        """Whether the kernel's host cannot be reached, or one of its GPUs cannot be used any more."""
        if remote.link_state is LinkState.AWAY:  # perhaps for a moment only
            with contextlib.suppress(GpuKernelError, asyncio.TimeoutError):
                await asyncio.wait_for(remote.link.up(), DROP_WITHIN)
        if remote.link_state is LinkState.LOST or remote.link.state != "up":
            return True
        gpus = remote.status["gpus"]
        if not gpus:
            return False
        node, count = self._nodes.of(remote.settings), remote.settings.gpus
        try:
            answer = await node.request(None, None, "offer", ASK_WITHIN, gpus=count)
        except GpuKernelError:
            return remote.link.state != "up"
        usable = answer.get("usable") or []
        return bool(usable or answer.get("problem")) and not set(gpus) <= set(usable)

    def _host_lost(self, remote: RemoteKernel, wait: SharedWait) -> None:
        if remote.waits_for_host:
            return wait.changed()
        remote.hold()
        self._tasks.spawn(self._choose_anew(remote))

    async def _choose_anew(self, remote: RemoteKernel) -> None:
        try:
            settings = await self._placement.choose(remote.settings, None, self._owner)
        except GpuKernelError as error:
            remote.fail(error)
        else:
            self._place(remote, settings, restart=False)
        finally:
            remote.resume()

    def _place(self, remote: RemoteKernel, settings: KernelSettings, *, restart: bool) -> None:
        node = self._nodes.of(settings)
        link = node.begin_link(settings.python, None)
        delivered = self.delivered(settings, remote.kernel_id)
        if restart:
            remote.restart_on(link, settings, delivered)
        else:
            remote.relocate(link, settings, delivered)
            remote.create_anew()
        self._nodes.record_start(remote.kernel_id, node)
