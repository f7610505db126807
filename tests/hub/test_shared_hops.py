"""One sign-in serves all routes that begin with the same hops: two hops of real OpenSSH, whose first one asks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dialling import Owner, in_thread
from runtimes import RUNTIME
from sshd import TwoHops, make_key
from streams import LoopThread
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.errors import AuthError, GpuKernelError
from jupyter_gpu_kernel.hub.connections.connect import Connections
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node.nodes import Nodes
from jupyter_gpu_kernel.hub.node.shared_connection import RouteSettings, SharedConnection
from jupyter_gpu_kernel.hub.ssh import Asker, Attempt
from jupyter_gpu_kernel.hub.ssh.route_connection import RouteConnection
from jupyter_gpu_kernel.hub.transport.connection import Connection

pytestmark = pytest.mark.full

LOGIN, WORK = ("login",), ("login", "work")
Join = Callable[..., Connection]


@pytest.fixture(params=["paramiko", "ssh"])
def transport(request: pytest.FixtureRequest) -> str:
    """The transports that share hops."""
    return str(request.param)


@pytest.fixture
def locked(two_hops: TwoHops) -> Path:
    """The key that the login node takes; the user has to type its passphrase."""
    key = make_key(two_hops.folder / "locked", passphrase="open sesame")
    two_hops.login.authorized.write_text(Path(f"{key}.pub").read_text())
    two_hops.ssh_config.write_text(f"Host login\n  IdentityFile {key}\n{two_hops.ssh_config.read_text()}")
    return key


@pytest.fixture
def join(two_hops: TwoHops, transport: str) -> Iterator[Join]:
    """`connect` of one hub, with the ssh configuration; connections are closed afterwards."""
    connections, made = Connections(two_hops.trust_file), list[Connection]()

    def joined(
        route: tuple[str, ...] = WORK,
        ask: Asker | None = None,
        via: tuple[str, ...] = (),
        identity: tuple[str, ...] = (),
        shares: bool = True,
        progress: Callable[[str, str], None] = lambda hop, step: None,
    ) -> Connection:
        settings = RouteSettings(route, identity, str(two_hops.ssh_config), via, transport)
        connection = connections.connect(settings, Attempt(ask, progress, shares=shares))
        made.append(connection)
        return connection

    yield joined
    for connection in made:
        connection.close()


def echo(connection: Connection) -> bytes:
    return connection.run("echo on").stdout


def sign_ins(two_hops: TwoHops) -> list[int]:
    return [
        sum("Accepted publickey" in line for line in host.log) for host in (two_hops.login, two_hops.work)
    ]


@pytest.mark.usefixtures("locked")
def test_a_hop_for_which_the_user_typed_is_shared_until_nobody_uses_it(two_hops: TwoHops, join: Join) -> None:
    owner = Owner("open sesame")
    first, login, second = join(ask=owner), join(LOGIN), join()
    commands = join(LOGIN, via=("env A=1",))
    assert len(owner.questions) == 1 and sign_ins(two_hops) == [1, 2]
    assert all(one.interactive for one in (first, login, second, commands))
    stream = login.open("cat")
    first.close()
    assert not first.alive() and echo(second) == b"on\n"
    stream.write(b"here")
    assert stream.read() == b"here"
    login.close()
    assert stream.read() == b"" and not login.alive(), "the session ends, though its connection stays"
    assert commands.run("echo $A").stdout == b"1\n" and second.responds(DEADLINE)
    commands.close()
    second.close()
    eventually(
        lambda: two_hops.login.sessions() + two_hops.work.sessions() == 0, "all connections are closed"
    )


class SlowOwner(Owner):
    """Types an answer once both questions could have come."""

    def __init__(self, *secrets: str) -> None:
        super().__init__(*secrets)
        self.asked, self.types = threading.Event(), threading.Event()

    def secret(self, hop: str, prompt: str, secret: object) -> str:
        self.asked.set()
        self.types.wait(DEADLINE)
        return super().secret(hop, prompt, secret)


@pytest.mark.usefixtures("locked")
def test_two_sign_ins_at_once_ask_one_question(two_hops: TwoHops, join: Join) -> None:
    """As when JupyterLab restores notebooks on two nodes behind one login node."""
    owner, reached = SlowOwner("open sesame"), threading.Event()
    first = in_thread(partial(join, ask=owner))
    assert owner.asked.wait(DEADLINE)

    def progress(hop: str, step: str) -> None:
        if step.startswith("waiting for another sign-in"):
            reached.set()

    impatient = Owner("open sesame")
    second = in_thread(partial(join, ask=impatient, progress=progress))
    assert reached.wait(DEADLINE)
    owner.types.set()
    made = [one.get(timeout=DEADLINE) for one in (first, second)]
    assert all(isinstance(one, RouteConnection) and one.alive() for one in made), made
    assert len(owner.questions) == 1 and impatient.questions == []
    eventually(lambda: sign_ins(two_hops) == [1, 2], "both have signed in")


@pytest.mark.usefixtures("locked")
def test_who_is_about_to_ask_when_another_sign_in_ends_uses_that_one(two_hops: TwoHops, join: Join) -> None:
    owner, made = SlowOwner("open sesame"), list[object]()
    first = in_thread(partial(join, ask=owner))
    assert owner.asked.wait(DEADLINE)

    def progress(hop: str, step: str) -> None:
        if step == "sign in" and not made:
            owner.types.set()
            made.append(first.get(timeout=DEADLINE))

    impatient = Owner("open sesame")
    assert join(ask=impatient, progress=progress).alive()
    assert isinstance(made[0], RouteConnection) and impatient.questions == []
    eventually(lambda: sign_ins(two_hops) == [1, 2], "both have signed in")


@pytest.mark.usefixtures("locked")
def test_who_waits_for_a_sign_in_that_fails_is_asked(two_hops: TwoHops, join: Join) -> None:
    owner, reached = SlowOwner("wrong", "wrong", "wrong"), threading.Event()
    first = in_thread(partial(join, ask=owner))
    assert owner.asked.wait(DEADLINE)
    other = Owner("open sesame")
    second = in_thread(
        partial(join, ask=other, progress=lambda hop, step: "another" in step and reached.set())
    )
    assert reached.wait(DEADLINE)
    owner.types.set()
    assert isinstance(first.get(timeout=DEADLINE), AuthError)
    connection = second.get(timeout=DEADLINE)
    assert isinstance(connection, RouteConnection) and connection.alive(), connection
    assert len(other.questions) == 1


def test_connections_that_nobody_typed_for_are_not_shared(two_hops: TwoHops, join: Join) -> None:
    assert join().alive() and join().alive() and join(LOGIN).alive()
    eventually(lambda: sign_ins(two_hops) == [3, 2], "each has signed in")


def test_other_options_or_a_wish_to_be_alone_are_another_sign_in(
    two_hops: TwoHops, locked: Path, join: Join
) -> None:
    assert join(ask=Owner("open sesame")).alive()
    for changed in ({"identity": (str(two_hops.key),)}, {"shares": False}):
        with pytest.raises(AuthError, match="needs its passphrase"):
            join(**changed)


@pytest.mark.usefixtures("locked")
def test_a_cut_is_noticed_by_all_and_ends_the_sharing(two_hops: TwoHops, join: Join) -> None:
    first, second = join(ask=Owner("open sesame")), join()
    two_hops.login.drop()
    eventually(lambda: not first.alive() and not second.alive(), "both are lost")
    with pytest.raises(AuthError):
        join()
    assert join(ask=Owner("open sesame")).alive()


@pytest.mark.usefixtures("locked")
def test_a_silent_hop_is_used_unless_the_user_can_sign_in(two_hops: TwoHops, join: Join) -> None:
    join(ask=Owner("open sesame"))
    with two_hops.login.stalled():
        owner = Owner("open sesame")
        assert join(LOGIN, ask=owner).alive() and len(owner.questions) == 1
        waiting = in_thread(partial(join, LOGIN))
    connection = waiting.get(timeout=DEADLINE)
    assert not isinstance(connection, Exception), connection


@pytest.mark.usefixtures("locked")
def test_a_node_that_restarts_is_reached_again_without_the_user(two_hops: TwoHops, join: Join) -> None:
    asked = join(ask=Owner("open sesame"))
    shared = SharedConnection(RouteSettings(WORK, (), None), lambda route, attempt: join(route.route))
    assert shared.run(None, echo) == b"on\n"
    asked.close()  # only `shared` has the first hop now
    two_hops.work.stop()
    with pytest.raises(GpuKernelError):
        shared.run(None, echo)
    two_hops.work.start()
    assert shared.run(None, echo) == b"on\n" and sign_ins(two_hops)[0] == 1
    shared.close()


class Hop:
    """A connection that needs nothing."""

    interactive = True

    def alive(self) -> bool:
        return True

    def close(self) -> None: ...


def test_a_sign_in_lets_nodes_try_again_that_waited_for_the_user() -> None:
    asked: list[str] = []

    def first_hop(route: RouteSettings, attempt: Attempt) -> Any:
        asked.append(route.route[-1])
        if attempt.ask is None and "work" not in asked:
            raise AuthError(
                "asks for a code", hop="login", remedy="jupyter gpu-kernel login NAME", login=True
            )
        return Hop()

    class Repeated:
        asks, abandoned, is_watch, within = False, False, True, None

        def progress(self, hop: str, step: str) -> None: ...

    class Asking(Repeated):
        asks = True

    with LoopThread() as loop:
        nodes = loop.call(Nodes, RUNTIME, first_hop, logging.getLogger("test"))
        other, node = (loop.call(nodes.of, KernelSettings(("login", name))) for name in ("other", "work"))
        for _ in range(2):
            with pytest.raises(AuthError):
                loop.run(other.connected(Repeated()))  # type: ignore[arg-type]
        loop.call(other.add_name, "lab")
        assert other.describe()["problem"]["remedy"] == "jupyter gpu-kernel login lab"
        assert asked == ["other"], "a refused sign-in is not tried again soon"
        loop.run(node.connected(Asking()))  # type: ignore[arg-type]
        loop.run(other.connected(Repeated()))  # type: ignore[arg-type]
        assert asked == ["other", "work", "other"]
