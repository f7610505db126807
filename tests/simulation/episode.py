"""One episode: the decisions of a plan happen; then every fault ends, and everything must come to a good end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jupyter_gpu_kernel.hub.kernel.states import Phase

from . import invariants
from .front_end import Client, Ports
from .hub import HubProcess, KernelInfos, UserFrontEnd
from .network import Path as NetworkPath
from .network import Session
from .node import Node
from .oracle import Disturbance, Request, check_request, check_unexcused, is_discarded, texts
from .plan import Decision, Plan
from .world import Failure, World

PATIENCE = 240.0
"""Seconds in which everything must have come to rest once all faults have ended."""
LINK_DEAD = 15.0
"""Seconds after which a link that is dead is up again."""
SHUTDOWN_WAIT = 10.0
"""Seconds after which a front end kills a kernel that does not shut down."""


class Episode:
    """`run` it. `faults`: how many of each kind happened."""

    def __init__(self, plan: Plan, folder: Path, *, traced: bool = False) -> None:
        self.plan, self.folder = plan, folder
        folder.mkdir(mode=0o700)
        self.world = world = World(plan.seed, traced=traced)
        world.caps = plan.cap_mib < 1

        self.random = world.random("users")
        self.ports = Ports(world)
        self.ports.limit = plan.unread
        self.ports.on_kill = self._hub_killed_in_send
        self.path = NetworkPath(world, plan.delay, plan.rate)
        self.node = Node(world, folder / "node", self.path)
        self.infos = KernelInfos()
        if plan.knows_info:
            self.infos.put(
                "node", "", b'{"status": "ok", "protocol_version": "5.3", "implementation": "before"}'
            )
        self.hubs = 0
        self.hub: HubProcess = self._new_hub()
        self.fronts: list[UserFrontEnd] = [UserFrontEnd(self, 0)]
        self.everybody: list[Client] = [self.fronts[0].client]
        self.disturbances: list[Disturbance] = []
        self.faults: dict[str, int] = {}
        self.abandoned: set[str] = set()
        """The kernels whose start failed, as the hub was killed: their files stay for some days."""
        self._waiting: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._healed = False
        self._interrupt_at = 0.0
        self._numbers = 1
        self.node.on_death = self._disturb

    # ------------------------------------------------------------------------------------ the whole

    def run(self) -> World:
        """Let everything happen; raise Failure if something is wrong."""
        world = self.world
        self._in_hub(self._start)
        world.later(0.3, self._send, self.fronts[0], "shell", "kernel_info_request", {})
        while (
            self.hub.link is None or self.hub.link.state != "up"
        ):  # a start fails if the node is out of reach
            world.run(world.now + 0.05)
        for decision in self.plan.decisions:
            world.later(decision.at, self._decide, decision)
        ends = [one.at + 3 * one.arguments.get("gap", 0.0) for one in self.plan.decisions]
        world.run(world.now + max(ends, default=0.0))
        self._heal()
        if self.faults.get("node rebooted"):
            world.run(world.now + LINK_DEAD)  # until then nobody knows that the kernel has gone
        self._until(self._at_rest, PATIENCE, "never at rest")
        self._probe()
        self._check()
        self._end()
        return world

    def close(self) -> None:
        """Remove what an episode leaves."""
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
            [repr(self.hub.link), *map(repr, self.hub.kernels), *self._unanswered(), *self._left()]
        )

    def _start(self) -> None:
        self.hub.create(self.fronts[0])

    def _observe(self) -> None:
        self.world.states.add(invariants.state(self))
        for front_end in list(self.fronts):
            self._restart_if_dead(front_end)
            if (
                front_end.remote is not None
                and not front_end.started
                and front_end.remote.link.state == "failed"
            ):
                self._in_hub(self._start_again, front_end)
        if self._healed and self.world.now > self._interrupt_at:
            self._interrupt_questions()

    def _interrupt_questions(self) -> None:
        """A question of a front end that has left is asked nobody else: its user interrupts the kernel."""
        asks = [process.asks for process in self.node.processes.values() if process.running and process.asks]
        if any(self.world.all_requests[msg_id].client.gone for msg_id in asks):
            self._interrupt_at = self.world.now + 10.0
            self._op_interrupt(self.fronts[0], {})

    def _disturb(self, kind: str) -> None:
        self.disturbances.append(Disturbance(kind, self.world.now))

    # ------------------------------------------------------------------------------------ the hub

    def _new_hub(self) -> HubProcess:
        self.hubs += 1
        return HubProcess(self, self.hubs)

    def _in_hub(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call it in the hub, or in the next one."""
        if self.hub.alive:
            self.world.soon(self.hub, function, *arguments)
        else:
            self._waiting.append((function, arguments))

    def _kill_hub(self) -> None:
        if self.hub.alive and self.hub.kernels:
            self.hub.kill()
            self._hub_was_killed()

    def _hub_killed_in_send(self) -> None:
        self._hub_was_killed()
        self.hub.kill_now()

    def _hub_was_killed(self) -> None:
        self._disturb("hub killed")
        self.ports.kill_at = 0
        for front_end in self.fronts:
            front_end.front = front_end.remote = None
        self.world.later(self.random.uniform(0.3, 2.0), self._next_hub)

    def _next_hub(self) -> None:
        self.hub = self._new_hub()
        for front_end in self.fronts:
            self.world.later(self.random.uniform(0.01, 1.0), self._adopt, front_end, process=self.hub)
        waiting, self._waiting = self._waiting, []
        for function, arguments in waiting:
            self.world.later(1.5, self._in_hub, function, *arguments)

    def _adopt(self, front_end: UserFrontEnd) -> None:
        if not front_end.here or front_end.remote is not None:
            return
        if not front_end.started:
            return self._start_again(front_end)
        here = (one for one in self.hub.kernels if one.kernel_id == front_end.kernel_id and not one.closed)
        remote = next(here, None)
        if remote is None:
            self.hub.create(front_end, how="adopt", kernel_id=front_end.kernel_id)
        else:
            self.hub.join(front_end, remote, adopted=True)

    def _start_again(self, front_end: UserFrontEnd) -> None:
        """That start has failed, and the user tries again: the hub was killed, or the node was out of reach."""
        if not front_end.here:
            return
        self.hub.start_failed(front_end)
        self.abandoned.add(front_end.kernel_id)
        front_end.here = False
        front_end.client.leave()
        if front_end is self.fronts[0]:
            self.fronts[0] = self._new_front_end()
            self.hub.create(self.fronts[0])
        else:
            self.fronts.remove(front_end)

    # ------------------------------------------------------------------------------------ decisions

    def _decide(self, decision: Decision) -> None:
        self.world.note("decision", decision.kind, json.dumps(decision.arguments)[:80])
        self._observe()
        name = decision.kind.replace(" ", "_").replace("-", "_")
        operation = getattr(self, f"_op_{name}", None)
        if operation is not None:
            return operation(self._front(decision.arguments.get("front", 0)), decision.arguments)
        self.faults[decision.kind] = self.faults.get(decision.kind, 0) + 1
        getattr(self, f"_fault_{name}")(decision.arguments)

    def _front(self, number: int) -> UserFrontEnd:
        return self.fronts[min(number, len(self.fronts) - 1)]

    def _send(
        self, front: UserFrontEnd, channel: str, msg_type: str, content: dict[str, Any], cell: Any = None
    ) -> Request | None:
        return front.client.send(channel, msg_type, content, cell) if front.here else None

    def _op_cells(self, front: UserFrontEnd, arguments: dict[str, Any]) -> None:
        for number, cell in enumerate(arguments["cells"]):
            content = execute(cell, stop=arguments["stop"])
            self.world.later(
                number * arguments["gap"], self._send, front, "shell", "execute_request", content, cell
            )

    def _op_own_code(self, front: UserFrontEnd, _: dict[str, Any]) -> None:
        content = execute([], stop=False, store=False)
        self._send(front, "shell", "execute_request", content, [])

    def _op_info(self, front: UserFrontEnd, _: dict[str, Any]) -> None:
        self._send(front, "shell", "kernel_info_request", {})

    def _op_complete(self, front: UserFrontEnd, _: dict[str, Any]) -> None:
        self._send(front, "shell", "complete_request", {"code": "pri", "cursor_pos": 3})

    def _op_clear(self, front: UserFrontEnd, _: dict[str, Any]) -> None:
        self._send(front, "control", "kernel_info_request", {})

    def _op_comm(self, front: UserFrontEnd, _: dict[str, Any]) -> None:
        for kind in ("comm_open", "comm_msg", "comm_close"):
            self._send(front, "shell", kind, {"comm_id": "c", "data": {"x": 1}, "target_name": "t"})

    def _op_interrupt(self, front: UserFrontEnd, _: dict[str, Any]) -> None:
        self._disturb("interrupt")
        self._send(front, "control", "interrupt_request", {})

    def _op_interrupt_command(self, front: UserFrontEnd, _: dict[str, Any]) -> None:
        if self.hub.alive:  # else the call fails
            self._disturb("interrupt")
            self._in_hub(self._command, front, "interrupt")

    def _command(self, front: UserFrontEnd, do: str) -> None:
        if front.remote is not None and front.front is front.remote.front_ends.owner:
            front.remote.command(do)

    def _op_restart(self, front: UserFrontEnd, _: dict[str, Any]) -> None:
        """As jupyter_client does: ask the kernel to shut down, wait, and start it again."""
        if front.wants_restart or not front.here:
            return
        self._disturb("restart")
        front.wants_restart = True
        self._send(front, "control", "shutdown_request", {"restart": True})
        self._await_end(front, self.world.now + SHUTDOWN_WAIT)

    def _await_end(self, front: UserFrontEnd, deadline: float) -> None:
        if front.state != "ended" and self.world.now < deadline:
            self.world.later(0.1, self._await_end, front, deadline)
            return
        if front.state != "ended":
            self._in_hub(self._command, front, "kill")
        self.world.later(0.05, self._in_hub, self._restart, front)

    def _op_restart_now(self, front: UserFrontEnd, _: dict[str, Any]) -> None:
        if not front.wants_restart and front.here:
            self._disturb("restart")
            front.wants_restart = True
            self._in_hub(self._restart, front)

    def _restart(self, front: UserFrontEnd) -> None:
        if not front.here:
            return
        if front.remote is None:  # it is adopted in a moment
            self.world.later(0.2, self._in_hub, self._restart, front)
            return
        front.wants_restart = False
        self._disturb("restart")
        if front.front is front.remote.front_ends.owner and not front.remote.taken_cause:
            front.state = "starting"
            front.remote.restart()
        else:
            front.send(front.remote.event())  # it was told that the kernel had ended, which it does not own

    def _restart_if_dead(self, front: UserFrontEnd) -> None:
        """A server restarts a kernel that has died, but not one that starts with its user's next cell; and a user
        restarts one that another front end has shut down, which did not own it any more when it was to start it."""
        wanted = any(one.wants_restart for one in self.fronts)
        given_up = front.remote is not None and front.remote.phase is Phase.RESTART
        by_itself = front.asked == "restart" or given_up or (not front.asked and not self.plan.revives)
        dead = front.state == "ended" and by_itself and not wanted
        if dead and front.here and front.remote is not None and front.front is front.remote.front_ends.owner:
            front.wants_restart = True
            self.world.later(self.random.uniform(0.1, 3.0), self._in_hub, self._restart, front)

    def _op_second_front_end(self, _: UserFrontEnd, __: dict[str, Any]) -> None:
        if len(self.fronts) < 2:
            self.fronts.append(self._new_front_end())
            self._in_hub(self._join, self.fronts[-1])

    def _new_front_end(self) -> UserFrontEnd:
        front_end = UserFrontEnd(self, self._numbers)
        self._numbers += 1
        self.everybody.append(front_end.client)
        return front_end

    def _join(self, front_end: UserFrontEnd) -> None:
        first = self.fronts[0]
        if front_end.remote is not None or not front_end.here:
            return
        if first.remote is None:
            self.world.later(0.3, self._in_hub, self._join, front_end)
            return
        front_end.kernel_id = first.kernel_id
        self.hub.join(front_end, first.remote)

    def _op_second_leaves(self, _: UserFrontEnd, __: dict[str, Any]) -> None:
        if len(self.fronts) == 2 and self.fronts[1].remote is not None:
            self._leave(self.fronts.pop())

    def _leave(self, front_end: UserFrontEnd) -> None:
        front_end.here = False
        front_end.client.leave()
        self._in_hub(self.hub.remove, front_end)

    def _op_return(self, front_end: UserFrontEnd, _: dict[str, Any]) -> None:
        """The notebook is closed, and opened again."""
        if len(self.fronts) > 1 or self.fronts[0].remote is None or not self.fronts[0].started:
            return
        self._disturb("return")
        self._leave(self.fronts[0])
        self.fronts[0] = self._new_front_end()
        self.world.later(self.random.uniform(0.01, 3.0), self._in_hub, self._return, self.fronts[0])

    def _return(self, front_end: UserFrontEnd) -> None:
        if front_end.here and front_end.remote is None:
            self.hub.create(front_end)

    # ------------------------------------------------------------------------------------ faults

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
        client = self.random.choice(self.fronts).client
        client.paused = True
        self.world.later(arguments["seconds"], client.resume)

    def _fault_hub_killed(self, _: dict[str, Any]) -> None:
        self._kill_hub()

    def _fault_hub_killed_in_a_send(self, arguments: dict[str, Any]) -> None:
        if self.hub.alive and self.hub.kernels:
            self.ports.kill_at = arguments["sends"]

    def _fault_clock_jump(self, arguments: dict[str, Any]) -> None:
        self.random.choice((self.hub.runtime, self.node.runtime)).jump += arguments["by"]

    def _fault_slow_node(self, arguments: dict[str, Any]) -> None:
        self.node.slow = self.random.choice((0.5, 3.0))
        self.world.later(arguments["seconds"], self._fast_node)

    def _fast_node(self) -> None:
        self.node.slow = 0.0

    def _fault_keeper_killed(self, _: dict[str, Any]) -> None:
        for keeper in list(self.node.keepers.values()):
            if keeper.alive and keeper.keeper.kernel.runs_without_keeper:
                self._disturb("keeper killed")
                self.world.keeper_kills += 1
                keeper.kill()

    def _fault_node_rebooted(self, arguments: dict[str, Any]) -> None:
        self._disturb("reboot")
        for session in list(self._sessions()):
            session.cut(silent=True)
        self.node.reboot()
        for attach in self.node.attached:
            attach.end()
        self._away(arguments["seconds"])

    def _heal(self) -> None:
        """From now on nothing fails."""
        self.world.note("healed")
        self._healed = True
        self.ports.kill_at = 0
        self.path.heal()
        self.node.slow = 0.0
        for client in self.everybody:
            client.resume()

    # ------------------------------------------------------------------------------------ the end

    def _requests(self) -> Iterator[Request]:
        return (request for client in self.everybody for request in client.requests.values())

    def _unanswered(self) -> list[str]:
        waiting = [
            one for one in self._requests() if one.cell is not None and one.needs_reply and not one.replies
        ]
        ended = any(one.state == "ended" for one in self.fronts)  # and only a user's cell starts it again
        waiting = [one for one in waiting if not is_discarded(one, self.disturbances)]
        due = (one for one in waiting if not one.client.gone and (one.user_cell or not ended))
        return [f"no reply to {one}" for one in due]

    def _left(self) -> list[str]:
        return invariants.left(self)

    def _at_rest(self) -> bool:
        if (
            not self.hub.alive
            or self._waiting
            or any(one.remote is None or one.wants_restart for one in self.fronts)
        ):
            return False
        if self._unanswered() or self._left():
            return False
        return all(one.state in ("idle", "ended", "busy") for one in self.fronts)

    def _probe(self) -> None:
        """At the end, a cell of the user runs."""
        front = self.fronts[0]
        if front.state == "ended" and not self.plan.revives:
            return
        self.world.run(
            self.world.now + 2.0
        )  # an interrupt that was answered may still be on its way to the kernel
        self._until(self._at_rest, 60.0, "not at rest")
        cell = [["prints", 2, 10]]
        request = self._send(front, "shell", "execute_request", execute(cell, stop=True), cell)
        assert request is not None
        self._until(lambda: bool(request.replies) and self._at_rest(), 60.0, "the last cell has no reply")
        if request.replies[0].get("status") != "ok":
            raise Failure("the last cell failed", f"{request.replies[0]}")

    def _check(self) -> None:
        executed = self.world.executed
        requests = list(self._requests())
        for request in requests:
            check_request(request, self.disturbances, executed.get(request.msg_id, []))
        for request in requests:
            check_unexcused(request, self.disturbances, executed.get(request.msg_id, []), requests)
        ended = [front_end.client for front_end in self.fronts if front_end.state == "ended"]
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

    def _check_order(self) -> None:
        for client in self.everybody:
            began = [runs[0].began for msg_id in client.requests if (runs := self.world.executed.get(msg_id))]
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
            runs = self.world.executed.get(request.msg_id, [])
            page = keeper.keeper.relay.history.page(request.msg_id, 0)
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
        owners = (one for one in self.fronts if one.remote and one.front is one.remote.front_ends.owner)
        front = next(owners, self.fronts[0])
        if self.plan.ends_with_shutdown and front.state != "ended":
            self._send(front, "control", "shutdown_request", {"restart": False})
            deadline = world.now + SHUTDOWN_WAIT
            while front.state != "ended" and world.now < deadline:
                world.run(world.now + 0.1)
        for front_end in list(self.fronts):
            self._leave(front_end)
        world.run(world.now + 1.0)
        ends = self.plan.ends_with_shutdown and front.asked
        self._stop_kernels(front.kernel_id if ends else "")
        self._until(lambda: all(not one.alive for one in self.node.keepers.values()), 200.0, "keeper left")
        self._until(lambda: all(one.closed for one in self.hub.kernels), 60.0, "kernel left in the hub")
        self._in_hub(self._close_hub)
        world.run(world.now + 70.0)
        if any(process.running for process in self.node.processes.values()):
            raise Failure("kernel left", "its process runs")
        left = world.pending()
        if left:
            raise Failure("timers left", "; ".join(f"{one.process.name}: {one.callback}" for one in left[:5]))
        if problems := invariants.files_left(self):
            raise Failure("files left", "; ".join(problems))

    def _stop_kernels(self, but: str) -> None:
        for keeper in self.node.keepers.values():
            if keeper.alive and keeper.kernel_id != but:
                self.world.soon(keeper, keeper.keeper.stop, "the end")

    def _close_hub(self) -> None:
        self.hub.async_loop.create_task(self.hub.close())


def execute(cell: list[Any], *, stop: bool, store: bool = True) -> dict[str, Any]:
    """Return the content of an execute_request."""
    return {
        "code": json.dumps(cell), "silent": False, "store_history": store, "allow_stdin": True, "stop_on_error": stop,
        "user_expressions": {},
    }  # fmt: skip
