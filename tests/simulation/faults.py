"""What fails: the faults of a plan, with the names of their decisions."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Any

from .computer import Computer
from .keeper import KeeperProcess
from .network import Path, Session
from .plan import NAMES
from .slurm import HOST, LOGIN

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

    def _computer(self, arguments: dict[str, Any]) -> Computer:
        return self.computers[min(arguments.get("computer", 0), len(self.computers) - 1)]

    def _sessions(self, computer: Computer) -> list[Session]:
        return [one for path in computer.paths for one in path.sessions if not one.over]

    def _away(self, computer: Computer, seconds: float) -> None:
        for path in computer.paths:
            path.up = False
        self.world.later(seconds, self._reachable, computer)

    def _reachable(self, computer: Computer) -> None:
        for path in computer.paths:
            path.up = True

    def _fault_drop(self, arguments: dict[str, Any]) -> None:
        for session in self._sessions(self._computer(arguments)):
            session.cut()
        self.disturb("cut")

    def _fault_silent_cut(self, arguments: dict[str, Any]) -> None:
        for session in self._sessions(self._computer(arguments)):
            session.cut(silent=True)
        self._away(self._computer(arguments), arguments["seconds"])

    def _fault_half_open(self, arguments: dict[str, Any]) -> None:
        for session in self._sessions(self._computer(arguments)):
            session.cut(silent=True, up=arguments["up"], down=arguments["down"])

    def _fault_stall(self, arguments: dict[str, Any]) -> None:
        for session in self._sessions(self._computer(arguments)):
            session.stall(up=arguments["up"], down=arguments["down"])
            self.world.later(arguments["seconds"], session.resume)

    def _fault_unreachable(self, arguments: dict[str, Any]) -> None:
        self._fault_drop(arguments)
        self._away(self._computer(arguments), arguments["seconds"])

    def _fault_slow_path(self, arguments: dict[str, Any]) -> None:
        path = self._computer(arguments).path
        path.slow = self.random.choice((0.1, 0.5, 2.0))
        self.world.later(arguments["seconds"], self._fast_path, path)

    def _fast_path(self, path: Path) -> None:
        path.slow = 0.0

    def _fault_slow_reader(self, arguments: dict[str, Any]) -> None:
        front = self._front(arguments["front"]) if "front" in arguments else self.random.choice(self.fronts)
        client = front.client
        client.paused = True
        self.world.later(arguments["seconds"], client.resume)

    def _fault_hub_killed(self, arguments: dict[str, Any]) -> None:
        self._computer(arguments).kill_hub()

    def _fault_hub_killed_in_a_send(self, arguments: dict[str, Any]) -> None:
        computer = self._computer(arguments)
        if computer.hub.alive and computer.hub.kernels:
            counter = "writes_until_kill" if arguments.get("writes") else "sends_until_kill"
            setattr(computer.ports, counter, arguments["sends"])

    def _fault_clock_jump(self, arguments: dict[str, Any]) -> None:
        hub = self._computer(arguments).hub
        self.random.choice((hub.runtime, self.node.runtime)).jump += arguments["by"]

    def _fault_slow_node(self, arguments: dict[str, Any]) -> None:
        self.node.slow = self.random.choice((0.5, 3.0))
        self.world.later(arguments["seconds"], self._fast_node)

    def _fast_node(self) -> None:
        self.node.slow = 0.0

    def _job_ended(self, runs: bool) -> None:
        """A job has ended, and not by itself. `runs`: it was running."""
        self.disturb("job ended")
        if runs:
            self.world.reboots += 1
            self.world.times["kernel gone"].append(self.world.now)
        for computer in self.computers:
            for session in [one for one in computer.host_path(HOST).sessions if not one.over]:
                session.cut()

    def _fault_job_ends(self, arguments: dict[str, Any]) -> None:
        slurm = self.node.slurm
        for job in slurm.active if slurm is not None else []:
            slurm.end(job, arguments["state"])  # type: ignore[union-attr]

    def _fault_controller_away(self, arguments: dict[str, Any]) -> None:
        if self.node.slurm is not None:
            self.node.slurm.away_until = self.world.now + arguments["seconds"]

    def _fault_answers_lost(self, arguments: dict[str, Any]) -> None:
        if self.node.slurm is not None:
            self.node.slurm.lost_until = self.world.now + arguments["seconds"]

    def _fault_login_away(self, arguments: dict[str, Any]) -> None:
        path = self.computers[0].host_path(LOGIN)
        path.up = False
        self.world.later(arguments["seconds"], path.heal)

    def _fault_foreign_on_host(self, arguments: dict[str, Any]) -> None:
        gpus = self.computers[0].host(NAMES[arguments["host"]]).gpus
        if gpus is not None and gpus.take(0):
            self.world.later(arguments["seconds"], gpus.leave, 0)

    def _fault_host_away(self, arguments: dict[str, Any]) -> None:
        path = self.computers[0].host_path(NAMES[arguments["host"]])
        path.up = False
        for session in [one for one in path.sessions if not one.over]:
            session.cut()
        self.world.later(arguments["seconds"], path.heal)

    def _fault_keeper_killed(self, arguments: dict[str, Any]) -> None:
        """At once, or at one of its next steps."""
        for keeper in list(self.node.keepers.values()):
            steps = arguments.get("steps") or self.node.kills.choice((0, 0, 1, 2, 3, 4, 5, 6, 8, 12))
            if steps and not self.world.disk_was_full:  # else the log may be lost then
                keeper.killed_before_step = keeper.steps + steps
            else:
                self._kill_keeper(keeper)

    def _kill_keeper(self, keeper: KeeperProcess) -> None:
        keeper.killed_before_step = 0
        if keeper.alive and keeper.keeper.kernel.runs_without_keeper:
            self.disturb("keeper killed", keeper.keeper.settings.now.notebook)
            self.world.keeper_kills += 1
            keeper.kill()

    def _fault_disk_full(self, arguments: dict[str, Any]) -> None:
        """No file of hub and keepers can grow."""
        self.world.caps = self.world.disk_was_full = True  # so output may be left out
        for keeper in self.node.keepers.values():
            keeper.killed_before_step = 0
        limit_files(0)
        self.world.later(arguments["seconds"], limit_files, resource.RLIM_INFINITY)

    def _fault_node_rebooted(self, arguments: dict[str, Any]) -> None:
        self.disturb("reboot")
        self.world.reboots += 1
        self.world.times["kernel gone"].append(self.world.now)
        for computer in self.computers:
            for session in self._sessions(computer):
                session.cut(silent=True)
            self._away(computer, arguments["seconds"])
        self.node.reboot()
        for attach in self.node.attached:
            attach.end()
