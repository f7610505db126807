"""Connects along a route with the system's ssh program: one ControlMaster per hop.

Each master connects through the one before it, so each step of each hop is timed, an error has its hop, and the user
signs in once for all sessions. Where the user's own ssh has a connection to a hop open, that connection is used, and
never closed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from ...errors import ConnectError, GpuKernelError
from ..paths import control_folder
from ..ssh import Attempt, hostkeys
from ..ssh.config.route import Hop
from ..ssh.connector import Connector, ServerBusy
from ..ssh.route_connection import RouteConnection
from ..ssh.sign_in.deadline import Deadline, TimedAsker
from ..ssh.sign_in.keys import UserKeys, agent_keys
from . import complaints
from .askpass_server import AskpassServer
from .log import HOST_KEY, REACH, SIGN_IN, HostKey, Log
from .master import Master
from .master_hop import MasterHop
from .program import find_program, open_master
from .questions import Questions

_AGENT_TIMEOUT = 2.0  # seconds
_STEPS = {REACH: "reach", HOST_KEY: "host key", SIGN_IN: "sign in"}


class _UnknownHost(Exception):
    """ssh ended, because the host key is not known."""


class OpenSSHConnector(Connector):
    """Connects with the system's ssh program."""

    def __init__(
        self, connection: RouteConnection, attempt: Attempt, deadline: Deadline, trust_file: Path
    ) -> None:
        super().__init__(connection, attempt, deadline, trust_file)
        self.program = find_program()

    def _first(self, route: Sequence[Hop]) -> int:
        """Begin behind the last hop to which the user's own connection is open, if there is one."""
        begun = super()._first(route)
        for number, hop in reversed(list(enumerate(route))[begun:]):
            control = open_master(hop)
            if control is not None:
                with self.step(hop, "your own connection"):
                    self.connection.add(hop, MasterHop(hop.label, self.program, control, None))
                return number + 1
        return begun

    def _connect_hop(self, hop: Hop, ask: TimedAsker | None) -> None:
        accepted: HostKey | None = None
        since, completed = time.monotonic(), len(self.connection.steps)
        try:
            for number in self._attempts(hop):
                del self.connection.steps[completed:]  # those of the attempt before
                attempt = _Attempt(self, hop, ask, accepted)
                try:
                    return attempt.run()
                except ServerBusy as busy:
                    if busy.greeted and number:
                        raise _lost(hop.label) from None
                except _UnknownHost:
                    accepted = attempt.master.log.host_key
        except GpuKernelError as error:
            if not error.steps:  # an attempt knows its own
                self._with_steps(error, (hop.label, _STEPS[REACH], time.monotonic() - since))
            raise


class _Attempt:
    """One ssh process for one hop, which has just been started."""

    def __init__(
        self, connector: OpenSSHConnector, hop: Hop, ask: TimedAsker | None, accepted: HostKey | None
    ) -> None:
        """`accepted`: the host key that the user has accepted just now."""
        self._hop, self._ask, self._accepted = hop, ask, accepted
        self._connector, self._connection = connector, connector.connection
        self._deadline, self._trust_file = connector.deadline, connector.trust_file
        self._program = connector.program
        self._jump = self._connection.label
        before = self._connection.opened[-1] if self._connection.opened else None
        assert before is None or isinstance(before, MasterHop)
        self._before = before.master.log if before is not None and before.master is not None else None
        self._before_lines = self._before.count if self._before else 0
        folder, name, log = control_folder(), secrets.token_hex(4), Log()
        self._questions = Questions(hop, self._program.version, ask, log, accepted, connector.progress)
        self._server: AskpassServer | None = None
        if self._ask is not None:
            token = secrets.token_hex(16)
            self._server = AskpassServer(folder, f"{name}a", token, self._questions.answer)
        if accepted is not None:
            hostkeys.append(self._trust_file, b"")  # ssh will write to it, but would let others read it
        command = self._program.master(
            hop,
            control=folder / name,
            before=before.control if before is not None else None,
            known_hosts=(self._trust_file, *hop.known_hosts),
            accepts_host=accepted is not None,
            asks=self._ask is not None,
            timeout=self._deadline.remaining(),
        )
        environment = self._server.environment if self._server is not None else {}
        self.master = Master(command, folder / name, environment, log)

    def run(self) -> None:
        """Connect, and add the hop to the connection. Raises ServerBusy, _UnknownHost, or a GpuKernelError."""
        try:
            self._follow()
        except BaseException:
            self.master.end()
            raise
        finally:
            if self._server is not None:
                self._server.close()

    def _follow(self) -> None:
        """Wait for each step of ssh, then add the hop."""
        for step, name in _STEPS.items():
            with self._connector.step(self._hop, name):
                self._wait(step)
        opened = MasterHop(self._hop.label, self._program, self.master.control, self.master)
        self._connection.add(self._hop, opened)

    def _wait(self, step: int) -> None:
        """Wait until ssh has come further than this step. Raises the error for an ssh that comes no further."""
        log = self.master.log
        while not log.wait_beyond(step, self._deadline.remaining(1.0)):
            if self._deadline.expired:
                raise complaints.timed_out(self._hop, log, self._jump)
        has_ended = log.step > SIGN_IN and not self.master.listens
        if has_ended and min(log.last_step, SIGN_IN) == step:
            self.master.end()
            raise self._questions.problem or self._failure(step)

    def _failure(self, step: int) -> GpuKernelError:
        """Return the error for an ssh that has ended in this step. Raises ServerBusy or _UnknownHost."""
        log, hop = self.master.log, self._hop
        if step == REACH:
            lines = self._before.lines(self._before_lines) if self._before else []
            try:
                return complaints.not_reached(hop, log, self._jump, lines)
            except ServerBusy:
                if self._before is None or self._connection.alive():
                    raise
                return _lost(self._jump)
        can_ask = self._ask is not None
        if step == HOST_KEY:
            if self._accepts_host():
                raise _UnknownHost
            return complaints.host_key_refused(hop, log, self._trust_file, can_ask)
        return complaints.sign_in_failed(hop, log, _unused_keys(hop), can_ask, self._questions.typed)

    def _accepts_host(self) -> bool:
        """Whether the host key is only unknown, and the user accepts it now."""
        log = self.master.log
        if self._accepted is not None or self._ask is None or not self._hop.restrictions.new_hosts:
            return False
        if not complaints.is_unknown_host(log) or log.host_key is None:
            return False
        return self._ask.confirm_host(self._hop.label, log.host_key.fingerprint, log.host_key.type)


def _lost(hop: str) -> ConnectError:
    return ConnectError("the connection was lost", hop=hop, remedy="Check the network and try again.")


def _unused_keys(hop: Hop) -> UserKeys:
    """Return the user's keys with the reasons why some of them cannot be used: ssh does not tell."""
    with agent_keys(hop, _AGENT_TIMEOUT) as held:
        keys = UserKeys(hop, None, held)
        for _ in keys.offered():
            pass
    return keys
