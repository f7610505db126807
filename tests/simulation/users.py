"""What users do: the operations of a plan, with the names of their decisions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .computer import Computer
from .hub import UserFrontEnd
from .oracle import Request
from .plan import Decision
from .reasons import Interrupt

if TYPE_CHECKING:
    from .episode import Episode as Base
else:
    Base = object

SHUTDOWN_WAIT = 10.0
"""Seconds after which a front end kills a kernel that does not shut down."""


class Users(Base):
    """The part of an episode that knows users and their front ends."""

    def _decide(self, decision: Decision) -> None:
        self.world.note("decision", decision.kind)
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
        self.disturb("interrupt", front.notebook)
        self._send(front, "control", "interrupt_request", {})

    def _op_interrupt_command(self, front: UserFrontEnd, _: dict[str, Any]) -> None:
        if front.computer.hub.alive:  # else the call fails
            self.disturb("interrupt", front.notebook)
            front.computer.in_hub(self._command, front, "interrupt")

    def _command(self, front: UserFrontEnd, do: str) -> None:
        if front.remote is not None and front.remote.owns(front.front):
            if do == "interrupt":  # before: the hub may be killed within it
                self.interrupts.append(Interrupt(front.notebook, self.world.now))
            front.remote.command(do)

    def _op_restart(self, front: UserFrontEnd, _: dict[str, Any]) -> None:
        """As jupyter_client does: ask the kernel to shut down, wait, and start it again."""
        if front.wants_restart or not front.here:
            return
        self.disturb("restart", front.notebook)
        front.wants_restart = True
        self._send(front, "control", "shutdown_request", {"restart": True})
        self._await_end(front, self.world.now + SHUTDOWN_WAIT)

    def _await_end(self, front: UserFrontEnd, deadline: float) -> None:
        if front.state != "ended" and self.world.now < deadline:
            self.world.later(0.1, self._await_end, front, deadline)
            return
        if front.state != "ended":
            front.computer.in_hub(self._command, front, "kill")
        self.world.later(0.05, front.computer.in_hub, self._restart, front)

    def _op_restart_now(self, front: UserFrontEnd, _: dict[str, Any]) -> None:
        if not front.wants_restart and front.here:
            self.disturb("restart", front.notebook)
            front.wants_restart = True
            front.computer.in_hub(self._restart, front)

    def _restart(self, front: UserFrontEnd) -> None:
        if not front.here:
            return
        if front.remote is None:  # it is adopted in a moment
            self.world.later(0.2, front.computer.in_hub, self._restart, front)
            return
        front.wants_restart = False
        self.disturb("restart", front.notebook)
        if front.remote.owns(front.front) and not front.remote.life.taken_cause:
            front.state, front.restarts = "starting", True
            front.computer.hub.restart(front.remote)
        else:
            front.send(front.remote.event())  # it was told that the kernel had ended, which it does not own

    def _restart_if_dead(self, front: UserFrontEnd) -> None:
        """A server restarts a kernel that has died, but not one that starts with its user's next cell; and one that was
        shut down for a restart, as its launcher ends then."""
        wanted = any(one.wants_restart for one in self._sharing(front))
        by_itself = front.asked == "restart" or (not front.asked and not self.plan.revives)
        dead = front.state == "ended" and by_itself and not wanted
        if (
            dead
            and front.here
            and not front.taken
            and front.remote is not None
            and front.remote.owns(front.front)
        ):
            front.wants_restart = True
            self.world.later(self.random.uniform(0.1, 3.0), front.computer.in_hub, self._restart, front)

    def _op_second_front_end(self, _: UserFrontEnd, __: dict[str, Any]) -> None:
        if len(self.fronts) < 2:
            self.fronts.append(self._new_front_end())
            self.computers[0].in_hub(self._join, self.fronts[-1])

    def _new_front_end(self, computer: Computer | None = None) -> UserFrontEnd:
        front_end = UserFrontEnd(computer or self.computers[0], self._numbers)
        self._numbers += 1
        self.everybody.append(front_end.client)
        return front_end

    def _join(self, front_end: UserFrontEnd) -> None:
        first = self.fronts[0]
        if front_end.remote is not None or not front_end.here:
            return
        if first.remote is None:
            self.world.later(0.3, front_end.computer.in_hub, self._join, front_end)
            return
        front_end.kernel_id = first.kernel_id
        front_end.computer.hub.join(front_end, first.remote)

    def _op_other_computer(self, _: UserFrontEnd, __: dict[str, Any]) -> None:
        """The user attaches a front end of another computer to the kernel, and takes it by that from the first one."""
        if len(self.fronts) < 2 and self.fronts[0].started:
            if len(self.computers) < 2:
                self.computers.append(Computer(self, 1))
            self.fronts.append(self._new_front_end(self.computers[1]))
            self.computers[1].in_hub(self._attach, self.fronts[-1])

    def _attach(self, front_end: UserFrontEnd) -> None:
        if front_end.remote is None and front_end.here:
            front_end.attaches = True
            front_end.computer.hub.create(front_end, how="attach", kernel_id=self.fronts[0].kernel_id)

    def _op_second_leaves(self, _: UserFrontEnd, __: dict[str, Any]) -> None:
        if len(self.fronts) == 2 and self.fronts[1].remote is not None:
            self._leave(self.fronts.pop())

    def _leave(self, front_end: UserFrontEnd) -> None:
        front_end.here = False
        front_end.client.leave()
        front_end.computer.in_hub(front_end.computer.hub.remove, front_end)

    def _op_return(self, front_end: UserFrontEnd, _: dict[str, Any]) -> None:
        """The notebook is closed, and opened again."""
        if len(self.fronts) > 1 or self.fronts[0].remote is None or not self.fronts[0].started:
            return
        self.disturb("return", front_end.notebook)
        before = self.fronts[0].client
        self._leave(self.fronts[0])
        self.fronts[0] = self._new_front_end()
        self.fronts[0].client.former = {before, *before.former}
        in_hub = front_end.computer.in_hub
        self.world.later(self.random.uniform(0.01, 3.0), in_hub, self._return, self.fronts[0])

    def _return(self, front_end: UserFrontEnd) -> None:
        if front_end.here and front_end.remote is None:
            front_end.computer.hub.start(front_end)


def execute(cell: list[Any], *, stop: bool, store: bool = True) -> dict[str, Any]:
    """Return the content of an execute_request."""
    return {
        "code": json.dumps(cell), "silent": False, "store_history": store, "allow_stdin": True, "stop_on_error": stop,
        "user_expressions": {},
    }  # fmt: skip
