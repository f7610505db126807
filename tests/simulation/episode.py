"""One episode: the decisions of a plan happen; then every fault ends, and everything must come to a good end."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable
from pathlib import Path

from . import invariants
from .computer import Computer
from .endings import Endings
from .faults import Faults, limit_files
from .front_end import Client
from .hosts import Hosts
from .hub import HubProcess, UserFrontEnd
from .node import Node
from .notebooks import Notebooks
from .oracle import Disturbance
from .plan import Plan
from .reasons import Interrupt
from .slurm import Slurm
from .users import Users, execute
from .world import Failure, World

PATIENCE = 240.0
"""Seconds in which everything must have come to rest once all faults have ended."""
LINK_DEAD = 15.0
"""Seconds after which a link that is dead is up again."""
_TRIES_AGAIN = 0.5
"""Seconds after which the user tries to start a kernel again."""


class Episode(Users, Notebooks, Faults, Endings):
    """`run` it. Its base classes are parts of this one class, each in a module of its own, and use each other.

    computers: Those of the user; a second one comes when the user goes on there.
    fronts: The front ends of the first notebook; `others` (in `Notebooks`) has those of all other notebooks.
    everybody: The clients of all front ends there have been, also of those that have left.
    disturbances: What users and faults did because of which cells may end otherwise.
    faults: How many of each kind happened.
    """

    def __init__(self, plan: Plan, folder: Path, *, traced: bool = False) -> None:
        self.plan, self.folder = plan, folder
        folder.mkdir(mode=0o700)
        self.world = world = World(plan.seed, traced=traced)
        world.caps = plan.cap_mib < 1
        world.ids_collide = plan.ids_collide
        world.starts_later = plan.hosts > 0 or plan.slurm

        self.random = world.random("users")
        self.node = Hosts(world, folder / "node", plan.hosts) if plan.hosts else Node(world, folder / "node")
        if plan.slurm:
            self.node.slurm = Slurm(world, self.node)
            self.node.slurm.on_end = self._job_ended
        self._begin_gpus()
        self.computers = [Computer(self, 0)]
        self.fronts: list[UserFrontEnd] = [UserFrontEnd(self.computers[0], 0)]
        self.everybody: list[Client] = [self.fronts[0].client]
        self.disturbances: list[Disturbance] = []
        self.faults: dict[str, int] = {}
        self.abandoned: set[str] = set()
        """The kernels whose start failed, as the hub was killed: their files stay for some days."""
        self.interrupts: list[Interrupt] = []
        """Those by a command of the owner's program."""
        self._healed = False
        self._interrupt_at = 0.0
        self._observed_steps = -1
        self._numbers = 1
        for node in self.node.all if isinstance(self.node, Hosts) else [self.node]:
            node.on_death, node.on_kill_due = self.disturb, self._kill_keeper

    # ------------------------------------------------------------------------------------ the whole

    def run(self) -> World:
        """Let everything happen; raise Failure if something is wrong."""
        self._begin()
        self._follow_plan()
        self._heal()
        self._come_to_rest()
        self._probe()
        self._check()
        self._end()
        return self.world

    def _begin(self) -> None:
        """The user opens the notebook, and the hub connects to the node, else the start would fail."""
        world, hub = self.world, self.computers[0].hub
        self.computers[0].in_hub(self._start)
        world.later(0.3, self._send, self.fronts[0], "shell", "kernel_info_request", {})
        while not (self.world.starts_later or (hub.link is not None and hub.link.state == "up")):
            world.run(world.now + 0.05)

    def _follow_plan(self) -> None:
        """All decisions happen. The last of the cells of one decision is sent up to three gaps later."""
        for decision in self.plan.decisions:
            self.world.later(decision.at, self._decide, decision)
        ends = [one.at + 3 * one.arguments.get("gap", 0.0) for one in self.plan.decisions]
        self.world.run(self.world.now + max(ends, default=0.0))

    def _come_to_rest(self) -> None:
        """Nothing fails any more, and everybody reads: wait until every request has its reply, and nothing waits."""
        if self.faults.get("node rebooted") or self.faults.get("job ends"):
            self.world.run(self.world.now + LINK_DEAD)  # until then nobody knows that the kernel has gone
        for client in self.everybody:
            client.resume()
        self._until(self._at_rest, PATIENCE, "never at rest")

    def close(self) -> None:
        """Remove what an episode leaves."""
        limit_files(resource.RLIM_INFINITY)
        for computer in self.computers:
            computer.close()
        self.world.close()
        self.node.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _until(self, condition: Callable[[], bool], seconds: float, kind: str) -> None:
        deadline = self.world.now + seconds
        while not condition():
            if self.world.now >= deadline:
                raise Failure(kind, self._situation())
            self.world.run(self.world.now + 0.25)
            self._observe()

    def _situation(self) -> str:
        return "; ".join(
            [
                *(repr(hub.link) for hub in self.hubs),
                *(repr(remote) for hub in self.hubs for remote in hub.kernels),
                *self._unanswered(),
                *self._left(),
            ]
        )

    def _start(self) -> None:
        self.computers[0].hub.start(self.fronts[0])

    def _observe(self) -> None:
        if self.world.steps > self._observed_steps:
            self._observed_steps = self.world.steps
            self.world.states.add(invariants.state(self))
        for front_end in self._all_fronts():
            invariants.check_lost(front_end)
            self._restart_if_dead(front_end)
            if front_end.failed:
                front_end.computer.in_hub(self.start_again, front_end)
        self._observe_gpus()
        if self._healed and self.world.now > self._interrupt_at:
            self._interrupt_questions()

    def _interrupt_questions(self) -> None:
        """A question of a front end that has left, or whose kernel was taken, is asked nobody else; and a question or
        an answer may be lost with a killed hub. The user interrupts the kernel."""
        asks = [process.asks for process in self.node.processes.values() if process.running and process.asks]
        asked = [self.world.all_requests[name] for name in asks]
        taken = [one.client for one in self.fronts if one.taken]
        left = (one.client.gone or one.client in taken or one.replies or not one.needs_reply for one in asked)
        if any(left) or any(one.answered and self.world.kills for one in asked):
            self._interrupt_at = self.world.now + 10.0
            front = self._owner()
            if front.taken:  # and the other computer's front end has left
                self._send(front, "shell", "execute_request", execute([], stop=True), [])
            else:
                self._op_interrupt(front, {})

    def _owner(self) -> UserFrontEnd:
        """Return the front end that may interrupt and end the kernel."""
        served = (one for one in self.fronts if one.remote and one.front and one.remote.owns(one.front))
        owners = (one for one in served if not one.taken)
        return next(owners, self.fronts[0])

    def disturb(self, kind: str, notebook: str = "") -> None:
        """Something happens because of which cells may end otherwise: those of this notebook, or all."""
        self.disturbances.append(Disturbance(kind, self.world.now, notebook))

    # ------------------------------------------------------------------------------------ the hubs

    @property
    def hubs(self) -> list[HubProcess]:
        """The present hubs of all computers."""
        return [one.hub for one in self.computers]

    def start_again(self, front_end: UserFrontEnd) -> None:
        """That start has failed, and the user tries again: the hub was killed, or the node was out of reach."""
        if not front_end.here:
            return
        hub = front_end.computer.hub
        hub.start_failed(front_end)
        self.abandoned.add(front_end.kernel_id)
        if front_end in self.others.values():
            return self._forget(front_end)
        front_end.here = False
        front_end.client.leave()
        if front_end is self.fronts[0]:
            self.fronts[0] = self._new_front_end()
            self.world.later(_TRIES_AGAIN, front_end.computer.in_hub, self._return, self.fronts[0])
        else:
            self.fronts.remove(front_end)

    def _heal(self) -> None:
        """From now on nothing fails."""
        self.world.note("healed")
        self._healed = True
        for computer in self.computers:
            computer.heal()
        for keeper in self.node.keepers.values():
            keeper.killed_before_step = 0
        self.node.slow = 0.0
        if isinstance(self.node, Hosts):
            self.node.heal()
        if self.node.slurm is not None:
            self.node.slurm.heal()
        self._heal_gpus()
        limit_files(resource.RLIM_INFINITY)
