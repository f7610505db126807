"""What must be true at the end of an episode, and how the user leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from . import invariants
from .computer import Computer
from .hub import UserFrontEnd
from .oracle import (
    Request,
    check_aborted,
    check_interrupted,
    check_request,
    check_taken_over,
    texts,
)
from .reasons import Reasons
from .slurm import WAITS
from .users import SHUTDOWN_WAIT, execute
from .world import Failure

if TYPE_CHECKING:
    from .episode import Episode as Base
else:
    Base = object
RESERVATION_ENDS = 330.0
"""Seconds in which a reservation ends that no hub knows any more."""
UNUSED = 30.0
"""Seconds for what a hub still asks hosts about, before the hub ends because nobody uses it."""
AWAY = 60.0
"""Seconds in which an interrupt has reached the kernel, also if the link was down."""
JOB_ENDS = 120.0
"""Seconds in which a job ends that nobody needs."""
KEEPER_ENDS = 30.0
"""Seconds in which a keeper ends whose kernel was shut down."""


class Endings(Base):
    """The part of an episode in which everything comes to its end."""

    def _requests(self) -> Iterator[Request]:
        return (request for client in self.everybody for request in client.requests.values())

    def _unanswered(self) -> list[str]:
        waiting = [
            one for one in self._requests() if one.cell is not None and one.needs_reply and not one.replies
        ]
        ended = any(one.state == "ended" for one in self.fronts)  # and only a user's cell starts it again
        due = (one for one in waiting if not one.client.gone and (one.user_cell or not ended))
        return [f"no reply to {one}" for one in due]

    def _left(self) -> list[str]:
        return invariants.left(self)

    def _at_rest(self) -> bool:
        if any(not one.hub.alive or one.waiting for one in self.computers) or any(
            one.remote is None or one.wants_restart for one in self.fronts
        ):
            return False
        if self._unanswered() or self._left() or self.others:
            return False
        return all(one.taken or one.state in ("idle", "ended", "busy") for one in self.fronts)

    def _probe(self) -> None:
        """Nothing fails any more, so a cell of the user must run. If another computer has taken the kernel, which has
        ended there, the first cell only shows this; then the next one runs."""
        if self.fronts[0].state == "ended" and not self.plan.revives:
            return
        self.world.run(
            self.world.now + 2.0
        )  # an interrupt that was answered may still be on its way to the kernel
        self._observe()  # which may have ended meanwhile
        self._until(self._at_rest, 60.0, "not at rest")
        front = self.fronts[0]
        if front.taken and not self._runs(front.kernel_id) and self._run_last_cell(front) != "ok":
            return self._probe()
        if (status := self._run_last_cell(front)) != "ok":
            raise Failure("the last cell failed", status)

    def _runs(self, kernel_id: str) -> bool:
        keeper = self.node.keepers.get(kernel_id)
        return keeper is not None and keeper.alive and keeper.keeper.status.state != "ended"

    def _run_last_cell(self, front: UserFrontEnd) -> str:
        cell = [["prints", 2, 10]]
        request = self._send(front, "shell", "execute_request", execute(cell, stop=True), cell)
        assert request is not None
        self._until(
            lambda: not front.here or (bool(request.replies) and self._at_rest()),
            60.0,
            "the last cell has no reply",
        )
        if (
            not front.here
        ):  # its kernel was taken before it had restarted, and the user has started another one
            return self._run_last_cell(self.fronts[0])
        reply = request.replies[0]
        return str(reply["status"] if reply.get("status") == "ok" else reply)

    def _check(self) -> None:
        executed = self.world.executed
        requests = list(self._requests())
        for request in requests:
            check_request(request, self.disturbances, executed.get(request.name, []))
        reasons = Reasons(self.world, requests, self.disturbances, self.interrupts)
        for request in requests:
            reasons.check(request)
        ended = [front_end.client for front_end in self.fronts if front_end.state == "ended"]
        kinds = {one.kind for one in self.disturbances}
        reads = not self.faults.get("slow reader")  # else a reply has been sent long before it is read
        if reads and not kinds & {
            "hub killed",
            "keeper killed",
            "reboot",
            "crash",
            "ended",
            "restart",
            "return",
            "taken",
        }:
            for request in requests:
                check_aborted(request, requests)
            if len(self.fronts) == 1:
                within = AWAY if self.faults else 2.0
                for request in self.fronts[0].client.requests.values():
                    check_interrupted(request, reasons.interrupted_at(request), within)
        restarts = sum(one.kind == "restart" for one in self.disturbances)
        if (
            not self.faults and kinds <= {"restart", "ended"} and restarts <= 3
        ):  # one, and perhaps a server's own
            for request in requests:
                check_taken_over(request, requests)
        for client in self.everybody:
            if (
                client not in ended
                and not client.gone
                and client.last_status not in ("idle", "starting", "")
                and not client.lossy
            ):
                raise Failure("busy for ever", f"{client} saw {client.last_status} last")
        self._check_order()
        self._check_history()
        self.gpu_oracle.check()

    def _check_order(self) -> None:
        if self.world.log_was_lost:
            return  # a cell that waited is not known any more: the hub names it behind those that it sends meanwhile
        for client in self.everybody:
            cells = [  # what is no user's cell does not wait for GPUs
                name
                for name, one in client.requests.items()
                if one.user_cell or not (self.plan.node_gpus or self.plan.hosts)
            ]
            began = [runs[0].began for name in cells if (runs := self.world.executed.get(name))]
            if began != sorted(began):
                raise Failure("order of cells", f"{client}: {began}")

    def _check_history(self) -> None:
        """The keeper's history has what each cell has printed, also if its front end had left."""
        if any(one.kind == "keeper killed" for one in self.disturbances):
            return
        keeper = self.node.keepers.get(self.fronts[0].kernel_id)
        if keeper is None or not keeper.alive:
            return
        for request in self._requests():
            runs = self.world.executed.get(request.name, [])
            page = keeper.keeper.core.log.state.cells.page(request.msg_id, 0)
            if request.user_cell and runs and runs[0].status and page and page["last"]:
                shown = invariants.history_outputs(page)
                true = {
                    kind: text for kind, text in texts(runs[0].outputs).items() if not kind.startswith("comm")
                }
                answers = "answer yes\n" * true.get("stdout", "").count("answer yes\n")
                if shown != true and not answers:
                    raise Failure("history", f"{request}: {shown} instead of {true}")

    def _end(self) -> None:
        """The user ends the kernel, or somebody does when nobody has it any more; nothing is left."""
        world = self.world
        front = self._owner()
        if self.plan.ends_with_shutdown and front.state != "ended":
            self._send(front, "control", "shutdown_request", {"restart": False})
            deadline = world.now + SHUTDOWN_WAIT
            while front.state != "ended" and world.now < deadline:
                world.run(world.now + 0.1)
        for front_end in list(self.fronts):
            self._leave(front_end)
        world.run(world.now + 1.0)
        ends = (
            self.plan.ends_with_shutdown and front.asked == "shutdown"
        )  # else the keeper waits for a restart
        self._stop_kernels(front.kernel_id if ends else "")
        self._until(
            lambda: all(not one.alive for one in self.node.keepers.values()),
            KEEPER_ENDS + (RESERVATION_ENDS if self.plan.hosts else 0.0),
            "keeper left",
        )
        self._until(
            lambda: all(one.closed for hub in self.hubs for one in hub.kernels),
            60.0,
            "kernel left in the hub",
        )
        if (
            self.node.slurm is not None
        ):  # a killed hub does not cancel its jobs; one of a closed notebook is kept
            slurm, within = self.node.slurm, JOB_ENDS + (WAITS if world.kills or self.plan.node_gpus else 0.0)
            self._until(lambda: not slurm.active, within, "job left")
        if self.plan.hosts or self.plan.slurm:
            world.run(world.now + UNUSED)
        for computer in self.computers:
            computer.in_hub(self._close_hub, computer)
        world.run(world.now + 70.0)
        for keeper in self.node.keepers.values():
            if not (self.faults.get("disk full") or keeper.keeper.settings.now.reservation):
                invariants.check_story(keeper)
        if any(process.running for process in self.node.processes.values()):
            raise Failure("kernel left", "its process runs")
        if self.node.gpus is not None and (names := self.node.gpus.left()):
            raise Failure("leases left", f"{names}")
        left = world.pending()
        if left:
            raise Failure("timers left", "; ".join(f"{one.process.name}: {one.callback}" for one in left[:5]))
        if problems := invariants.files_left(self):
            raise Failure("files left", "; ".join(problems))

    def _stop_kernels(self, but: str) -> None:
        for keeper in self.node.keepers.values():
            if keeper.alive and keeper.kernel_id != but:
                self.world.soon(keeper, keeper.keeper.stop, "the end")

    def _close_hub(self, computer: Computer) -> None:
        computer.hub.async_loop.create_task(computer.hub.close())
