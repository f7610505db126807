"""What fails: the faults of a plan, with the names of their decisions."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .keeper import KeeperProcess
from .network import Session

if TYPE_CHECKING:
    from .episode import Episode as Base
else:
    Base = object


def limit_files(size: float) -> None:
    """From now on this process can write only so many bytes into one file."""
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (most if size == resource.RLIM_INFINITY else int(size), most))


class Faults(Base):
    """The part of an episode that knows what can fail."""

    def _sessions(self) -> Iterator[Session]:
        return (one for one in self.path.sessions if not one.over)

    def _away(self, seconds: float) -> None:
        self.path.up = False
        self.world.later(seconds, self._reachable)

    def _reachable(self) -> None:
        self.path.up = True

    def _fault_drop(self, _: dict[str, Any]) -> None:
        for session in list(self._sessions()):
            session.cut()

    def _fault_silent_cut(self, arguments: dict[str, Any]) -> None:
        for session in list(self._sessions()):
            session.cut(silent=True)
        self._away(arguments["seconds"])

    def _fault_half_open(self, arguments: dict[str, Any]) -> None:
        for session in list(self._sessions()):
            session.cut(silent=True, up=arguments["up"], down=arguments["down"])

    def _fault_stall(self, arguments: dict[str, Any]) -> None:
        for session in list(self._sessions()):
            session.stall(up=arguments["up"], down=arguments["down"])
            self.world.later(arguments["seconds"], session.resume)

    def _fault_unreachable(self, arguments: dict[str, Any]) -> None:
        self._fault_drop(arguments)
        self._away(arguments["seconds"])

    def _fault_slow_path(self, arguments: dict[str, Any]) -> None:
        self.path.slow = self.random.choice((0.1, 0.5, 2.0))
        self.world.later(arguments["seconds"], self._fast_path)

    def _fast_path(self) -> None:
        self.path.slow = 0.0

    def _fault_slow_reader(self, arguments: dict[str, Any]) -> None:
        front = self._front(arguments["front"]) if "front" in arguments else self.random.choice(self.fronts)
        client = front.client
        client.paused = True
        self.world.later(arguments["seconds"], client.resume)

    def _fault_hub_killed(self, _: dict[str, Any]) -> None:
        self._kill_hub()

    def _fault_hub_killed_in_a_send(self, arguments: dict[str, Any]) -> None:
        if self.hub.alive and self.hub.kernels:
            kill_at = "kill_at_write" if arguments.get("writes") else "kill_at"
            setattr(self.ports, kill_at, arguments["sends"])

    def _fault_clock_jump(self, arguments: dict[str, Any]) -> None:
        self.random.choice((self.hub.runtime, self.node.runtime)).jump += arguments["by"]

    def _fault_slow_node(self, arguments: dict[str, Any]) -> None:
        self.node.slow = self.random.choice((0.5, 3.0))
        self.world.later(arguments["seconds"], self._fast_node)

    def _fast_node(self) -> None:
        self.node.slow = 0.0

    def _fault_keeper_killed(self, _: dict[str, Any]) -> None:
        """At once, or at one of its next steps."""
        for keeper in list(self.node.keepers.values()):
            steps = self.node.kills.choice((0, 0, 1, 2, 3, 4, 5, 6, 8, 12))
            if steps and not self.world.disk_was_full:  # else the log may be lost then
                keeper.kill_at = keeper.steps + steps
            else:
                self._kill_keeper(keeper)

    def _kill_keeper(self, keeper: KeeperProcess) -> None:
        keeper.kill_at = 0
        if keeper.alive and keeper.keeper.kernel.runs_without_keeper:
            self._disturb("keeper killed")
            self.world.keeper_kills += 1
            keeper.kill()

    def _fault_disk_full(self, arguments: dict[str, Any]) -> None:
        """No file of hub and keepers can grow."""
        self.world.caps = self.world.disk_was_full = True  # so output may be left out
        for keeper in self.node.keepers.values():
            keeper.kill_at = 0
        limit_files(0)
        self.world.later(arguments["seconds"], limit_files, resource.RLIM_INFINITY)

    def _fault_node_rebooted(self, arguments: dict[str, Any]) -> None:
        self._disturb("reboot")
        self.world.reboots += 1
        for session in list(self._sessions()):
            session.cut(silent=True)
        self.node.reboot()
        for attach in self.node.attached:
            attach.end()
        self._away(arguments["seconds"])
