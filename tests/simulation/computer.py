"""A computer of the user: its way to the node, the ports of its front ends, and its hub, which another one follows when
the hub is killed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .front_end import Ports
from .hosts import Hosts
from .hub import HubProcess, KernelInfos, UserFrontEnd
from .network import Path as NetworkPath
from .node import Node
from .plan import NAMES
from .slurm import HOST, LOGIN

if TYPE_CHECKING:
    from .episode import Episode

OWNERS = (
    {"owner": "this computer", "by": "alice@desk"},
    {"owner": "another computer", "by": "alice@laptop"},
)


class Computer:
    """`hub`: the present hub. `in_hub` calls something in the present hub, or in the next one."""

    def __init__(self, episode: Episode, number: int) -> None:
        """`number`: 0 for the computer where the notebook is opened first."""
        self.episode, self.number = episode, number
        self.world, self.plan, self.node = episode.world, episode.plan, episode.node
        self.name = f" of computer {number}" if number else ""
        self.owner = OWNERS[number]
        self.ports = Ports(self.world, f"loopback{self.name}")
        self.ports.limit, self.ports.notebook = self.plan.unread, self.plan.notebook
        self.ports.on_kill = self._hub_killed_in_send
        self.path = NetworkPath(self.world, self.plan.delay, self.plan.rate, f"path{self.name}")
        self._host_paths = {
            one: NetworkPath(self.world, self.plan.delay, self.plan.rate, f"path to {one}{self.name}")
            for one in ((LOGIN, HOST) if self.plan.slurm else NAMES[: self.plan.hosts])
        }
        self.folder = episode.folder / "delivered" / str(number)
        self.infos = KernelInfos()
        if self.plan.knows_info:
            self.infos.put(
                "node", "", b'{"status": "ok", "protocol_version": "5.3", "implementation": "before"}'
            )
        self.random = episode.random if not number else self.world.random("users of the other computer")
        self.waiting: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._hubs: list[HubProcess] = []  # else the end of a killed hub's tasks would be an event of others
        self.hub = self._new_hub()

    @property
    def fronts(self) -> list[UserFrontEnd]:
        """The front ends here."""
        return [one for one in self.episode._all_fronts() if one.computer is self]

    def in_hub(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call it in the hub, or in the next one."""
        if self.hub.alive:
            self.world.soon(self.hub, function, *arguments)
        else:
            self.waiting.append((function, arguments))

    def heal(self) -> None:
        """From now on nothing fails here."""
        self.ports.sends_until_kill = self.ports.writes_until_kill = 0
        for path in self.paths:
            path.heal()

    @property
    def paths(self) -> list[NetworkPath]:
        """The ways to the node, or to all hosts."""
        return list(self._host_paths.values()) or [self.path]

    def host_path(self, name: str) -> NetworkPath:
        """Return the way to one of several hosts."""
        return self._host_paths[name]

    def host(self, name: str) -> Node:
        """Return one of several hosts."""
        return self.node.all[NAMES.index(name)] if isinstance(self.node, Hosts) else self.node

    # ------------------------------------------------------------------------------------ the hub

    def _new_hub(self) -> HubProcess:
        self._hubs.append(HubProcess(self, len(self._hubs) + 1))
        return self._hubs[-1]

    def close(self) -> None:
        """The episode is over."""
        self.hub.alive = False
        for hub in self._hubs:
            hub.async_loop.end_tasks()

    def kill_hub(self) -> None:
        """Kill the hub, if it has something to do."""
        if self.hub.alive and self.hub.kernels:
            self.hub.kill()
            self._hub_was_killed()

    def _hub_killed_in_send(self) -> None:
        self._hub_was_killed()
        self.hub.kill_now()

    def _hub_was_killed(self) -> None:
        self.episode.disturb("hub killed")
        self.episode.forget_closed(self.hub)
        self.ports.sends_until_kill = self.ports.writes_until_kill = 0
        for front_end in self.fronts:
            if front_end.remote is not None and not front_end.started:  # it may have been given another id
                self.episode.abandoned.add(front_end.remote.kernel_id)
            front_end.front = front_end.remote = None
        self.world.later(self.random.uniform(0.3, 2.0), self._next_hub)

    def _next_hub(self) -> None:
        self.hub = self._new_hub()
        for front_end in self.fronts:
            self.world.later(self.random.uniform(0.01, 1.0), self._adopt, front_end, process=self.hub)
        waiting, self.waiting = self.waiting, []
        for function, arguments in waiting:
            self.world.later(1.5, self.in_hub, function, *arguments)

    def _adopt(self, front_end: UserFrontEnd) -> None:
        if not front_end.here or front_end.remote is not None:
            return
        if not front_end.started:
            return self.episode.start_again(front_end)
        here = (one for one in self.hub.kernels if one.kernel_id == front_end.kernel_id and not one.closed)
        remote = next(here, None)
        if remote is None:
            self.hub.adopt(front_end)
        else:
            self.hub.join(front_end, remote, adopted=True)
