"""Connects along a route with the system's ssh program.

Where ssh has a ControlMaster, each hop has one: each master connects through the one before it, and the user signs in
once for all sessions. Where the user's own ssh has a connection to a hop open, that connection is used, and never
closed. Where ssh has no ControlMaster, one process leads through all hops.

Either way each step of each hop is timed, and an error has its hop: each ssh process has a log of its own.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ...errors import ConnectError, GpuKernelError
from ..paths import control_folder, installed_script
from ..ssh import Attempt
from ..ssh.config.route import Hop
from ..ssh.failures import lost
from ..ssh.route_connection import Connector, RouteConnection, ServerBusy
from ..ssh.sign_in.deadline import Deadline, TimedAsker, Turns
from ..ssh.sign_in.keys import UserKeys, agent_keys
from ..transport.connection import SHELL
from . import complaints, questions
from .hops import DirectHop, MasterHop
from .process import HOST_KEY, REACH, SIGN_IN, SSHLog, SSHProcess
from .program import SignIn, find_program, open_master
from .questions import ASKPASS, AskpassServer, Questions

_STEPS = {REACH: "reach", HOST_KEY: "host key", SIGN_IN: "sign in"}
_LONG = 86400.0  # seconds
_JUMP_WAIT = 0.6  # seconds for the ssh of the previous hop to say why it does not lead further


class OpenSSHConnector(Connector):
    """Connects with the system's ssh program."""

    def __init__(
        self, connection: RouteConnection, attempt: Attempt, deadline: Deadline, trust_file: Path
    ) -> None:
        super().__init__(connection, attempt, deadline, trust_file)
        self.program, self.askpass = find_program(), installed_script(ASKPASS)

    def _reach(
        self, hops: Sequence[tuple[Hop, TimedAsker | None]], command: str | None, control: Path | None = None
    ) -> SSHProcess:
        """Return a process that has signed in to these hops, one after the other, and runs the command. Another process
        is started as long as that may help."""
        since, completed = time.monotonic(), len(self.connection.steps)

        def reach() -> SSHProcess:
            del self.connection.steps[completed:]  # those of the attempt before
            followed = self._followed(hops)
            try:
                return self._start(followed, command, control)
            except ServerBusy as busy:
                busy.final = any(one.questions.typed for one in followed)
                raise

        try:
            return self._repeated(reach)
        except ConnectError as error:
            failed = (error.hop, _STEPS[REACH], time.monotonic() - since)
            error.steps = error.steps or [*self.connection.steps, failed]
            raise

    def _followed(self, hops: Sequence[tuple[Hop, TimedAsker | None]]) -> list[Followed]:
        last = self.connection.opened[-1] if self.connection.opened else None
        jump, before = self.connection.label, last.log if isinstance(last, MasterHop) else None
        followed = []
        for hop, ask in hops:
            followed.append(Followed(self, hop, ask if self.askpass else None, jump, before))
            jump, before = hop.label, followed[-1].log
        return followed

    def _start(self, followed: Sequence[Followed], command: str | None, control: Path | None) -> SSHProcess:
        """Start a process, and follow it until it has signed in. Raises ServerBusy or a GpuKernelError."""
        last = self.connection.opened[-1] if self.connection.opened else None
        before = [last.sign_in()] if isinstance(last, MasterHop) else []
        first, *later = followed
        hops = [first.sign_in(self.deadline.remaining(), control)]
        hops += [one.sign_in(_LONG, control) for one in later]  # the hop before may ask the user
        words = self.program.command([*before, *hops], command)
        with contextlib.ExitStack() as stack:
            environment = {}
            if self.askpass and any(one.ask for one in followed):
                server = AskpassServer(
                    self.askpass, partial(questions.answer, [one.questions for one in followed])
                )
                stack.callback(server.close)
                environment = server.environment
            try:
                process = SSHProcess(words, [one.log for one in followed], environment, control)
            except OSError as error:
                raise complaints.not_started(followed[-1].hop, error) from error
            for one in followed:
                one.follow(process, final=one is followed[-1])
            return process


class MasterConnector(OpenSSHConnector):
    """Connects with one ControlMaster for each hop."""

    def _first(self, route: Sequence[Hop]) -> int:
        """Begin behind the last hop to which the user's own connection is open, if there is one."""
        begun = super()._first(route)
        for number, hop in reversed(list(enumerate(route))[begun:]):
            control = open_master(hop)
            if control is not None:
                with self.step(hop, "your own connection"):
                    self.connection.add(hop, MasterHop(hop, self.program, control, None))
                return number + 1
        return begun

    def _connect_hop(self, hop: Hop, ask: TimedAsker | None) -> None:
        control = control_folder() / secrets.token_hex(4)
        process = self._reach([(hop, ask)], None, control)
        self.connection.add(hop, MasterHop(hop, self.program, control, process))


class DirectConnector(OpenSSHConnector):
    """Connects with one process for the whole route."""

    def connect(self, route: Sequence[Hop], turns: Turns, since: int) -> None:
        """Connect as `Connector` does; no hop is shared."""
        with contextlib.ExitStack() as stack:
            hops = [
                (hop, stack.enter_context(self._asking(route[: number + 1], turns, since)))
                for number, hop in enumerate(route)
            ]
            process = self._reach(hops, SHELL)
            for hop, log in zip(route[:-1], process.logs, strict=False):
                self.connection.add_passed(hop, log.fingerprint)
            self.connection.add(route[-1], DirectHop(process, partial(self._dial, route)))
            if any(ask is not None and ask.asked for _, ask in hops):
                self.connection.mark_typed()

    def _connect_hop(self, hop: Hop, ask: TimedAsker | None) -> None:
        raise AssertionError("all hops are reached at once")

    def _dial(self, route: Sequence[Hop], command: str, timeout: float) -> SSHProcess:
        """Return another process for this command, which signs in without the user."""
        another = DirectConnector(RouteConnection(""), Attempt(), Deadline(timeout), self.trust_file)
        return another._reach([(hop, None) for hop in route], command)


class Followed:
    """One hop to which an ssh process connects: its log, and the questions that ssh asks about the hop."""

    def __init__(
        self, connector: OpenSSHConnector, hop: Hop, ask: TimedAsker | None, jump: str, before: SSHLog | None
    ) -> None:
        """`jump`: what messages call the previous hop. `before`: the log of the ssh that leads to that hop."""
        self.hop, self.log = hop, SSHLog()
        self.questions = Questions(
            hop, connector.program.version, ask, self.log, connector.progress, connector.trust_file
        )
        self.ask, self._connector = ask, connector
        self._jump, self._before = jump, before
        self._refusals = before.refusals if before is not None else 0

    def sign_in(self, timeout: float, control: Path | None) -> SignIn:
        """Return how ssh connects to the hop, and signs in."""
        known, asks = (self._connector.trust_file, *self.hop.known_hosts), self.ask is not None
        accepts_host = asks and self.hop.new_hosts
        return SignIn(self.hop, self.log.file, known, accepts_host, asks, timeout, control)

    def follow(self, process: SSHProcess, final: bool) -> None:
        """Wait for each step of ssh. If it fails, end the process. `final`: the process leads no further.

        Raises ServerBusy or a GpuKernelError."""
        try:
            for step, name in _STEPS.items():
                with self._connector.step(self.hop, name):
                    self._wait(step, process, final)
        except BaseException:
            process.end()
            raise

    def _wait(self, step: int, process: SSHProcess, final: bool) -> None:
        """Wait until ssh has come further than this step. Raises the error for an ssh that comes no further."""
        deadline = self._connector.deadline
        while not self.log.wait_beyond(step, deadline.remaining(1.0)):
            if deadline.expired:
                raise complaints.timed_out(self.hop, self.log, self._jump)
        if self.questions.problem is not None:
            raise self.questions.problem
        last = min(self.log.last_step, SIGN_IN) if final else self.log.last_step
        if last == step and process.lost(self.log):
            error = self._failure(step)
            raise (
                error
                if self._connector.askpass or not error.login
                else complaints.nothing_to_ask_with(self.hop)
            )

    def _failure(self, step: int) -> GpuKernelError:
        """Return the error for an ssh that has ended in this step. Raises ServerBusy."""
        log, hop, questions = self.log, self.hop, self.questions
        if step == REACH:
            before, since = self._before, self._refusals
            refused = before.wait_for_refused_channel(since, _JUMP_WAIT) if before is not None else ""
            try:
                return complaints.not_reached(hop, log, self._jump, refused)
            except ServerBusy:
                connection = self._connector.connection
                if connection.opened and not connection.alive():
                    return lost(self._jump)
                raise
        if step == HOST_KEY:
            return complaints.host_key_refused(hop, log, self._connector.trust_file, questions.host_declined)
        return complaints.sign_in_failed(hop, log, _unused_keys(hop), self.ask is not None, questions.typed)


def _unused_keys(hop: Hop) -> UserKeys:
    """Return the user's keys with the reasons why some of them cannot be used: ssh does not tell."""
    with agent_keys(hop) as held:
        keys = UserKeys(hop, None, held)
        for _ in keys.offered():
            pass
    return keys
