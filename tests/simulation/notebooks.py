"""Other notebooks of the user, each with a kernel of its own, on a node whose GPUs do not suffice for all of them.

A notebook is opened, runs cells, and is closed; once nothing fails any more, each
of them is shut down when its cells have replies, so that the others get their turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .gpu_oracle import GpuOracle
from .gpus import NodeGpus
from .hub import HubProcess, UserFrontEnd

if TYPE_CHECKING:
    from .episode import Episode as Base
else:
    Base = object

_GIVES_UP = 20.0
"""Seconds after which the user gives up a wait for GPUs that only the first notebook can have."""


class Notebooks(Base):
    """The part of an episode that knows the other notebooks."""

    def _begin_gpus(self) -> None:
        """`others` are the notebooks that are open, by their numbers."""
        self.others: dict[int, UserFrontEnd] = {}
        self.gpu_oracle = GpuOracle(self)
        self._closing: set[int] = set()
        self._given_up = 0.0
        if self.plan.node_gpus:
            self.node.gpus = NodeGpus(self.node, self.plan.node_gpus, self.plan.gpus)
            self.node.sockets.on_change = self.gpu_oracle.changed

    def _all_fronts(self) -> list[UserFrontEnd]:
        return [*self.fronts, *self.others.values()]

    def _sharing(self, front_end: UserFrontEnd) -> list[UserFrontEnd]:
        """Return the front ends of the same kernel."""
        return self.fronts if front_end.notebook == self.fronts[0].notebook else [front_end]

    def _op_open_notebook(self, _: UserFrontEnd, arguments: dict[str, Any]) -> None:
        number = arguments["number"]
        if number not in self.others:
            front_end = self.others[number] = self._new_front_end()
            front_end.client.notebook, front_end.priority = f"/n{number}.ipynb", arguments["priority"]
            front_end.outside = arguments.get("outside", False)
            front_end.computer.in_hub(self._create_other, front_end)

    def _create_other(self, front_end: UserFrontEnd) -> None:
        if front_end.here and front_end.remote is None:
            front_end.computer.hub.start(front_end)

    def _op_in_notebook(self, _: UserFrontEnd, arguments: dict[str, Any]) -> None:
        """Do something in another notebook, if it is open."""
        front_end = self.others.get(arguments["number"])
        if front_end is not None and arguments["number"] not in self._closing:
            getattr(self, f"_op_{arguments['do'].replace(' ', '_')}")(front_end, arguments)

    def _op_close(self, front_end: UserFrontEnd, _: dict[str, Any]) -> None:
        """The page is closed. The kernel stays."""
        self.disturb("shutdown", front_end.notebook)
        self._forget(front_end)

    def _op_replace(self, front_end: UserFrontEnd, _: dict[str, Any]) -> None:
        """The user restarts the kernel in VS Code, where another kernel starts, to which the GPUs pass."""
        if front_end.remote is None or not front_end.started:
            return
        self.disturb("shutdown", front_end.notebook)
        self.world.shutdowns += 1
        self.world.times["kernel gone"].append(self.world.now)
        following = self.others[self._number(front_end)] = self._new_front_end()
        following.client.notebook, following.priority = front_end.notebook, front_end.priority
        following.fresh, following.outside = True, front_end.outside
        front_end.computer.in_hub(self._replace, front_end, following)

    def _replace(self, front_end: UserFrontEnd, following: UserFrontEnd) -> None:
        hub, left = following.computer.hub, front_end.remote
        self._create_other(following)
        if left is not None and following.remote is not None:
            hub.async_loop.create_task(hub.end_replaced(left, following.remote))
        self._leave(front_end)

    def _op_shutdown(self, front_end: UserFrontEnd, _: dict[str, Any]) -> None:
        """The user shuts the kernel down: its server waits for the end, and then its launcher leaves."""
        self.disturb("shutdown", front_end.notebook)
        self.world.shutdowns += 1
        self.world.times["kernel gone"].append(self.world.now)
        self._closing.add(self._number(front_end))
        self._send(front_end, "control", "shutdown_request", {"restart": False})
        self._await_shutdown(front_end, self.world.now + 10.0)

    def _await_shutdown(self, front_end: UserFrontEnd, deadline: float) -> None:
        if front_end.here and front_end.state != "ended" and self.world.now < deadline:
            self.world.later(0.1, self._await_shutdown, front_end, deadline)
        elif front_end.here:
            self._forget(front_end)

    def _forget(self, front_end: UserFrontEnd) -> None:
        number = self._number(front_end)
        self._closing.discard(number)
        del self.others[number]
        if front_end.remote is None:  # no hub hears of this
            self.abandoned.add(front_end.kernel_id)
        self._leave(front_end)

    def _number(self, front_end: UserFrontEnd) -> int:
        return next(number for number, one in self.others.items() if one is front_end)

    def forget_closed(self, hub: HubProcess) -> None:
        """The hub was killed: what it had to do for notebooks that were closed is lost, and their files stay."""
        ids = [one.kernel_id for one in self._all_fronts()]
        closed = [one.kernel_id for one in hub.kernels if one.kernel_id not in ids]
        self.abandoned.update(closed if self.plan.node_gpus else [])

    # ------------------------------------------------------------------------------------ foreign processes

    def _fault_foreign_process(self, arguments: dict[str, Any]) -> None:
        gpus = self.node.gpus
        if gpus is not None and gpus.take(arguments["gpu"]):
            self.world.later(arguments["seconds"], gpus.leave, arguments["gpu"])

    # ------------------------------------------------------------------------------------ the end

    def _heal_gpus(self) -> None:
        """Foreign processes end, and so do kernels that nobody has."""
        if self.node.gpus is not None:
            self.node.gpus.leave_all()

    def _observe_gpus(self) -> None:
        if self.node.gpus is None:
            return
        self.gpu_oracle.observe()
        if self._healed:
            self._close_others()

    def _close_others(self) -> None:
        """Shut down the notebooks whose cells have replies, and the kernels that no front end has."""
        for number, front_end in list(self.others.items()):
            unanswered = [
                one
                for one in front_end.client.requests.values()
                if one.user_cell and one.needs_reply and not one.replies
            ]
            if not unanswered and number not in self._closing and front_end.remote is not None:
                self._op_shutdown(front_end, {})
        ids = [one.kernel_id for one in self._all_fronts()]
        for keeper in self.node.keepers.values():
            if keeper.alive and keeper.kernel_id not in ids and not keeper.stopped:
                keeper.stopped = True
                self.world.soon(keeper, keeper.keeper.stop, "nobody has it")
        if self.world.now > max(self._given_up, self.gpu_oracle.only_others_wait_since) + _GIVES_UP:
            self._given_up = self.world.now
            for front_end in self.others.values():
                self._op_interrupt(front_end, {})
