"""One work node: one SSH connection and one link, shared by all front ends."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...errors import AuthError, ConnectError, GpuKernelError, HostKeyError
from ...wire.runtime import Runtime
from ..rpc import Call
from ..transport.connection import Connection
from ..transport.stream import Stream
from .check.find_python import FoundPythons, find_pythons
from .install import dial, pack
from .link import TRY_AGAIN_SOON, Link, LinkDown
from .shared_connection import Connect, RouteSettings, SharedConnection, describe

T = TypeVar("T")
REFUSED_FOR = 600.0
"""Seconds for which calls that are repeated do not try a refused sign-in again: servers block clients that fail often.
A `login`, or the start of a kernel, tries it at once."""
RECONNECT_WAIT = 4.0
"""Seconds that a request waits for a link which is reconnecting: it often is up again at once."""
_CONNECT_MARGIN = 3.0
"""Seconds beyond `Call.within` for an attempt to connect that fails, or first finds the old connection dead."""
_SPARES_TIMEOUT = 5.0
_MAX_NAMES = 100
"""Kernelspec names that are remembered for a node."""


class Node:
    """One work node: `connected` returns its SSH connection, and `link` the link to its agent, which reconnects while a
    kernel is attached."""

    def __init__(
        self,
        runtime: Runtime,
        settings: RouteSettings,
        connect: Connect,
        log: logging.Logger,
        asks: bool = True,
        on_sign_in: Callable[[], None] = lambda: None,
        name: str = "",
    ) -> None:
        """`asks`: see `SharedConnection`. `on_sign_in()` is called when the user may have typed a secret. `name`: the
        node's name in messages, if it is not what the user wrote."""
        self._runtime = runtime
        self.settings = settings
        self.python = ""
        self._log = log
        self._ssh: SharedConnection = SharedConnection(settings, connect, asks)
        self._on_sign_in = on_sign_in
        self.name = name or settings.name
        """The work node as the user wrote it."""
        self._call: Call | None = None
        self._link: Link | None = None
        self._connection = ""  # that of the link's last stream, in words
        self._keep_until = 0.0
        self._refused_until = 0.0
        self._names: list[str] = []
        self._connected = asyncio.Event()  # set by each success of `run`

    @property
    def in_use(self) -> bool:
        """Whether a kernel is attached."""
        return self._link is not None and self._link.in_use

    @property
    def linked(self) -> bool:
        """Whether the link to its agent is up, as far as is known."""
        return self._link is not None and self._link.state == "up"

    @property
    def kernel_ids(self) -> list[str]:
        """The ids of the kernels that are attached, or about to be."""
        return self._link.kernel_ids if self._link is not None else []

    @property
    def round_trip(self) -> float | None:
        """The seconds that a message takes to the node and back; None if that is not known."""
        return self._link.round_trip if self._link is not None else None

    @property
    def trouble(self) -> GpuKernelError | None:
        """Why the link of attached kernels is down, if the link reconnects without the user's help."""
        away = self._link is not None and self._link.in_use and self._link.state == "away"
        problem = self._link.problem if self._link is not None and away else None
        return None if isinstance(problem, AuthError | HostKeyError) else problem

    @property
    def needs_user(self) -> bool:
        """Whether the link, of attached kernels, waits until the user signs in."""
        return self._link is not None and isinstance(self._link.problem, AuthError | HostKeyError)

    @property
    def alive(self) -> bool:
        """Whether the SSH connection is open."""
        return self._ssh.alive

    @property
    def known(self) -> bool:
        """Whether a kernelspec has led to this node, or the hub has connected to it. A host that somebody has only
        searched for, perhaps with a wrong name, is not known."""
        return bool(self._names) or self._link is not None or self.alive

    @property
    def interactive(self) -> bool:
        """Whether the user typed a secret for the connection."""
        return self._ssh.interactive

    @property
    def kept_open(self) -> bool:
        """Whether the user signed in for kernels to come, and the connection is still open."""
        return self._runtime.monotonic() < self._keep_until and self.alive

    @property
    def _root_id(self) -> str:
        return self._link.root_id if self._link is not None else ""

    @property
    def _refusal(self) -> GpuKernelError | None:
        """Why a sign-in was refused not long ago, if nobody has connected since."""
        recent = self._runtime.monotonic() < self._refused_until
        return self._ssh.problem if recent and not self.alive else None

    @property
    def digest(self) -> str:
        """A file name for this route."""
        settings = self.settings
        route = repr((settings.route, settings.identity, settings.config, settings.via))
        return hashlib.sha256(route.encode()).hexdigest()[:16]

    def describe(self) -> dict[str, Any]:
        """Return {node, names (of kernelspecs that led to it), state, connected, problem} as JSON."""
        link = self._link
        problem = (link.problem if link is not None else None) or self._ssh.problem
        return {
            "node": self.name,
            "names": self._names,
            "state": link.state if link is not None else "connecting",
            "connected": self.alive,
            "problem": None if problem is None else problem.to_json((self._names or [""])[-1]),
        }

    def same_as(self, other: Node) -> bool:
        """Return whether both are one machine: their routes are equal, or lead to one folder of the agent, or, as long
        as the folders are not known, to one host key."""
        if self.settings == other.settings:
            return True
        if self._root_id and other._root_id:
            return self._root_id == other._root_id
        return self._ssh.host_key != "" and self._ssh.host_key == other._ssh.host_key

    def add_name(self, name: str) -> None:
        """Record the name of a kernelspec that leads to this node."""
        if name:
            self._names = [*(one for one in self._names if one != name), name][-_MAX_NAMES:]

    def keep_open(self, seconds: float) -> None:
        """Keep the connection open for so long, also without a kernel."""
        self._keep_until = self._runtime.monotonic() + seconds

    async def connected(self, call: Call | None) -> Connection:
        """Return the SSH connection, opened now if needed. `call` receives progress and is asked for secrets.

        A call that waits only for a short time (`Call.within`) gives up also while another attempt to connect, which
        may take longer, keeps the call waiting. Raises ConnectError then, or why the last attempt failed.
        """
        connecting = self.run(call, lambda connection: connection)
        if call is None or call.within is None:
            return await connecting
        limit = call.within + _CONNECT_MARGIN
        try:
            return await call.limited(limit, connecting)
        except asyncio.TimeoutError:
            cause = f"the node has not answered for {limit:.0f} s"
            raise self._ssh.problem or ConnectError(cause, hop=self.name, remedy=TRY_AGAIN_SOON) from None

    def try_again(self) -> None:
        """A sign-in that was refused, or that waits for the user, may succeed now."""
        self._refused_until = 0.0
        self._connected.set()
        if self._link is not None and self.needs_user:
            self._link.retry()

    def with_own_link(self) -> Node:
        """Return this node with its present connection and another link, which the caller must close."""
        node = copy.copy(self)
        node._link = None
        return node

    async def sign_in_may_succeed(self) -> None:
        """Return when somebody has connected, or a refused sign-in may be tried again."""
        self._connected.clear()
        if not self.alive:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._connected.wait(), REFUSED_FOR)

    async def signed_in(self, call: Call) -> None:
        """Connect, as `connected`; if only the user can sign in, wait until they `login` elsewhere: for the seconds of
        `Call.login_wait`."""
        deadline = self._runtime.monotonic() + call.login_wait
        while True:
            self._connected.clear()
            try:
                await self.connected(call)
                return
            except GpuKernelError as error:
                if not error.login or self._runtime.monotonic() >= deadline:
                    raise
            name = str(call.arguments.get("name") or "NAME")
            call.progress(self.name, f"waiting for you to sign in: jupyter gpu-kernel login {name}")
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._connected.wait(), deadline - self._runtime.monotonic())

    async def find_pythons(
        self, wanted: str | None, call: Call | None, setup: Sequence[str] = ()
    ) -> tuple[FoundPythons, Connection]:
        """Return the Python for kernels (`wanted`, or the best one), and the connection over which it was found."""
        if call is not None:
            call.progress(self.name, "looking for a Python with ipykernel")

        def find(connection: Connection) -> tuple[FoundPythons, Connection]:
            return find_pythons(connection, self.name, wanted, self._runtime.monotonic, setup), connection

        return await self.run(call, find)

    async def best_python(self, call: Call | None, setup: Sequence[str] = ()) -> str:
        """Return the path of the best Python, for a kernelspec that names none."""
        found, _ = await self.find_pythons(None, call, setup)
        return str(found.python.path)

    async def link(self, python: str, call: Call | None) -> Link:
        """Return the link once it is up. Raise the reason if it cannot be."""
        await self.connected(call)
        link = self.begin_link(python, call)
        await link.up()
        return link

    def begin_link(self, python: str, call: Call | None) -> Link:
        """Return the link, which may still be connecting."""
        if self._link is None or self._link.state == "failed":
            self.python = python
            self._call = call
            self._link = Link(self._runtime, self.name, self._dial, self._log, about=lambda: self._connection)
        else:
            self._link.retry()
        return self._link

    async def request(
        self, python: str | None, call: Call | None, do: str, timeout: float = 30.0, **more: Any
    ) -> dict[str, Any]:
        """Return the agent's answer. Ask twice if the link goes down, as it may have been dead before, unnoticed."""
        try:
            link = await self._link_for_request(python, call)
            return await link.request(do, timeout=timeout, **more)
        except LinkDown:
            link = await self._link_for_request(python, call)
            return await link.request(do, timeout=timeout, **more)

    async def close(self) -> None:
        """Close link and connection; keepers live on."""
        await self.close_link()
        await asyncio.to_thread(self._ssh.close)

    async def end_spares(self) -> None:
        """Have the agent end its spare interpreters, if no kernel runs there. Nothing is connected for that."""
        if self._link is not None and self._link.state == "up":
            with contextlib.suppress(GpuKernelError):
                await self._link.request("end_leftovers", timeout=_SPARES_TIMEOUT, leftovers=[], code=[])

    async def close_link(self) -> None:
        """Close the link; the connection stays."""
        if self._link is not None:
            await self._link.close()
            self._link = None

    async def _link_for_request(self, python: str | None, call: Call | None) -> Link:
        """Return the link. If the link is reconnecting for its kernels, wait only shortly."""
        if self.trouble is not None:
            raise self.trouble
        link = self._link
        if link is not None and link.in_use and link.state == "away" and link.problem is None:
            try:
                await asyncio.wait_for(link.up(), RECONNECT_WAIT)
                return link
            except asyncio.TimeoutError:
                cause = "the connection is down, and is being restored"
                raise ConnectError(cause, hop=self.name, remedy=TRY_AGAIN_SOON) from None
            except (AuthError, HostKeyError):  # the link does not ask
                if call is None or not call.asks:
                    raise
        return await self.link(python or self.python or await self.best_python(call), call)

    async def run(self, call: Call | None, work: Callable[[Connection], T]) -> T:
        """Return `work(connection)`, run on a worker thread; if the connection turns out to be dead, repeat the work
        over a new one. `call` receives progress and is asked for secrets."""
        if call is not None and call.is_watch and (refused := self._refusal) is not None:
            raise refused
        proven, was_alive = self.linked, self.alive
        try:
            result = await asyncio.to_thread(self._ssh.run, call, work, proven=proven)
        except (AuthError, HostKeyError):
            self._refused_until = self._runtime.monotonic() + REFUSED_FOR
            raise
        self._connected.set()
        if self.interactive and not was_alive:
            self._on_sign_in()
        if self._link is not None and self._link.state == "failed":
            self._link = None  # the reason for its failure is gone
        elif self._link is not None:
            self._link.retry()  # it may be waiting for a connection
        return result

    def _dial(self, reconnecting: bool) -> Stream:
        """Return a stream to the agent, over the existing connection or a new connection. Runs on a worker thread."""
        if reconnecting:
            self._ssh.close_if_silent()
        call = None if reconnecting or self._call is None or self._call.abandoned else self._call
        return self._ssh.run(call, self._start_agent, proven=reconnecting, close_on_failure=True)

    def _start_agent(self, connection: Connection) -> Stream:
        stream = dial(connection, pack(), self.python, self.name)
        self._connection = describe(connection, self.settings)
        return stream
