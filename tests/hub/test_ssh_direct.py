"""The system's ssh without a ControlMaster, as on Windows: one process leads through all hops.

What holds for all transports is in test_ssh.py, test_ssh_failures.py and test_ssh_sign_in.py.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from connecting import connect, connect_route
from dialling import Owner
from runtimes import RUNTIME
from ssh_server import SshServer, ssh_server
from sshd import TwoHops, make_key
from waiting import eventually

from jupyter_gpu_kernel.errors import AuthError, ConnectError, GpuKernelError
from jupyter_gpu_kernel.hub.node.check.find_python import find_pythons
from jupyter_gpu_kernel.hub.node.install import dial, pack
from jupyter_gpu_kernel.hub.paths import control_folder
from jupyter_gpu_kernel.hub.transport.connection import Connection
from jupyter_gpu_kernel.wire.stream.frames import MAGIC

__all__ = ["ssh_server"]
pytestmark = pytest.mark.full
AGENT = re.compile(b"agent\n")


@pytest.fixture
def locked(two_hops: TwoHops) -> None:
    """Both nodes take keys for which the user has to type a passphrase, one each."""
    lines = ""
    for node in (two_hops.login, two_hops.work):
        key = make_key(two_hops.folder / f"locked {node.name}", passphrase=f"open {node.name}")
        node.authorized.write_text(Path(f"{key}.pub").read_text())
        lines += f'Host {node.name}\n  IdentityFile "{key}"\n  IdentitiesOnly yes\n'
    two_hops.ssh_config.write_text(lines + two_hops.ssh_config.read_text())


@pytest.fixture
def join(two_hops: TwoHops) -> Iterator[Callable[..., Connection]]:
    """Connect along the route, as a kernelspec does; closed afterwards."""
    made: list[Connection] = []

    def joined(ask: Owner | None = None) -> Connection:
        made.append(
            connect_route(
                two_hops.route,
                config=two_hops.ssh_config,
                transport="direct",
                ask=ask,
                trust_file=two_hops.trust_file,
            )
        )
        return made[-1]

    yield joined
    for connection in made:
        connection.close()


def sign_ins(two_hops: TwoHops) -> list[int]:
    return [
        sum("Accepted publickey" in line for line in node.log) for node in (two_hops.login, two_hops.work)
    ]


@pytest.mark.usefixtures("locked")
def test_each_hop_asks_in_its_own_name_and_one_sign_in_serves_commands_and_the_agent(
    two_hops: TwoHops, join: Callable[..., Connection]
) -> None:
    asked: list[str] = []

    class Named(Owner):
        def secret(self, hop: str, prompt: str, secret: object) -> str:
            asked.append(hop)
            return super().secret(hop, prompt, secret)

    owner = Named("open login", "open work")
    connection = join(owner)
    assert asked == ["login", "work"] and ["locked login" in one for one in owner.questions] == [True, False]
    assert [(hop, step) for hop, step, _ in connection.steps] == [
        (hop, step) for hop in ("login", "work") for step in ("reach", "host key", "sign in")
    ]
    for number in range(3):
        assert connection.run("/bin/sh", stdin=b"echo %d; exit 3" % number)[:2] == (3, b"%d\n" % number)
    stream = connection.open("/bin/sh")
    stream.write(b"echo agent\n")
    assert stream.read_until(AGENT)[1]
    assert connection.interactive and sign_ins(two_hops) == [1, 1] and connection.alive()
    with pytest.raises(AuthError, match="needs its passphrase") as caught:  # the shell is in use
        connection.run("true")
    assert caught.value.login


@pytest.mark.usefixtures("locked")
def test_who_may_not_ask_is_told_which_hop_asks(join: Callable[..., Connection]) -> None:
    with pytest.raises(AuthError, match="needs its passphrase") as caught:
        join()
    assert caught.value.hop == "login"


def test_a_command_beside_the_agent_signs_in_again(
    two_hops: TwoHops, join: Callable[..., Connection]
) -> None:
    connection = join()
    stream = connection.open("/bin/sh")
    for _ in range(3):  # the second one's shell serves the next commands as well
        assert connection.run("echo on").stdout == b"on\n"
        eventually(lambda: sign_ins(two_hops) == [2, 2], "two have signed in")
    stream.write(b"echo agent\n")
    assert stream.read() == b"agent\n"
    connection.close()
    assert stream.read() == b"" and not connection.alive()
    eventually(
        lambda: two_hops.login.sessions() + two_hops.work.sessions() == 0, "all connections are closed"
    )


def busy_with(port: int) -> socket.socket:
    """Return the one connection that this server serves: it may learn late that the one before has signed in."""
    while True:
        hog = socket.create_connection(("127.0.0.1", port))
        if hog.recv(4) == b"SSH-":
            return hog
        hog.close()


def test_a_server_that_is_too_busy_for_another_sign_in(
    two_hops: TwoHops, join: Callable[..., Connection]
) -> None:
    two_hops.work.restart(MaxStartups="1")
    connection = join()
    stream = connection.open("/bin/sh")
    # What is tried last may also be out of time on the login node.
    with busy_with(two_hops.work.port), pytest.raises(ConnectError):
        connection.run("true", timeout=3)
    stream.write(b"echo agent\n")
    assert stream.read_until(AGENT)[1]


@pytest.mark.usefixtures("locked")
def test_no_secret_is_typed_again_because_the_next_server_is_busy(
    two_hops: TwoHops, join: Callable[..., Connection]
) -> None:
    """A code would be valid only once."""
    two_hops.work.restart(MaxStartups="1")
    owner = Owner("open login")
    with busy_with(two_hops.work.port), pytest.raises(ConnectError, match="no SSH version string") as caught:
        join(owner)
    assert caught.value.hop == "work" and len(owner.questions) == 1


def test_noise_and_what_a_command_leaves_behind_reach_no_other_command(
    two_hops: TwoHops, join: Callable[..., Connection]
) -> None:
    two_hops.work.shell(
        'echo "module system loaded"; echo "a warning" >&2; exec sh -c "$SSH_ORIGINAL_COMMAND"'
    )
    connection = join()
    left = connection.run("/bin/sh", stdin=b"sleep 600 & echo $!; echo problem >&2")
    os.kill(int(left.stdout), signal.SIGKILL)
    assert left.stderr == b"problem\n"
    assert connection.run("cat", stdin=bytes(range(256)) * 1000).stdout == bytes(range(256)) * 1000
    assert connection.run("exit 7; (").returncode == 2, "a wrong command does not end the shell"
    assert connection.run("echo on").stdout == b"on\n"


def test_an_owner_who_gives_up_ends_the_attempt(ssh_server: Callable[..., SshServer]) -> None:
    class GaveUpError(Exception):
        pass

    class Leaving(Owner):
        def secret(self, hop: str, prompt: str, secret: object) -> str:
            raise GaveUpError

    here = ssh_server("password")
    with pytest.raises(GaveUpError):
        connect_route(
            ["login"],
            config=config_of(here),
            transport="direct",
            ask=Leaving(),
            trust_file=here.trust_file,
        )


def test_a_host_is_accepted_for_a_route_of_several_hops(two_hops: TwoHops) -> None:
    two_hops.known_hosts.write_text("")
    owner = Owner()
    connection = connect(two_hops.hops, ask=owner, trust_file=two_hops.trust_file, transport="direct")
    assert connection.run("echo on").stdout == b"on\n"
    connection.close()
    assert [one.split()[0] for one in owner.questions] == ["login", "work"]
    assert len(two_hops.trust_file.read_text().splitlines()) == 2


def test_no_log_is_left(
    two_hops: TwoHops, join: Callable[..., Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        connection = join()
        assert len(list(control_folder().iterdir())) == 2  # one for each hop
        connection.close()
        eventually(lambda: list(control_folder().iterdir()) == [], "the logs are removed")
    with pytest.raises(GpuKernelError, match="lost"):
        connection.run("true")


def test_no_ssh_outlives_a_killed_hub(two_hops: TwoHops) -> None:
    program = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        from jupyter_gpu_kernel.hub.connections.connect import Connections
        from jupyter_gpu_kernel.hub.ssh import Attempt
        from jupyter_gpu_kernel.hub.ssh.config.route import resolve
        hops = resolve(["login", "work"], config={str(two_hops.ssh_config)!r})
        connection = Connections(Path({str(two_hops.trust_file)!r}), masters=False).along(hops, Attempt(), "ssh")
        print("connected", flush=True)
        sys.stdin.read()
    """)
    hub = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with hub:
        assert hub.stdout is not None and hub.stdout.readline() == "connected\n"
        assert two_hops.login.sessions() and two_hops.work.sessions()
        hub.kill()
    eventually(lambda: two_hops.login.sessions() + two_hops.work.sessions() == 0, "all ssh have ended")


def config_of(server: SshServer) -> Path:
    """A configuration with which the name `login` leads to this server."""
    config = server.trust_file.with_name("config")
    config.write_text(
        f"Host login\n  HostName 127.0.0.1\n  Port {server.port}\n  User alice\n  IdentityAgent none\n"
        "  IdentityFile none\n  UserKnownHostsFile none\n  GlobalKnownHostsFile none\n"
    )
    return config


def test_a_code_reaches_a_server(ssh_server: Callable[..., SshServer]) -> None:
    here = ssh_server("keyboard-interactive")
    owner = Owner("000000", "123456")
    with contextlib.suppress(ConnectError):  # this server runs no shell, which may be noticed at once
        connect_route(
            ["login"], config=config_of(here), transport="direct", ask=owner, trust_file=here.trust_file
        ).close()
    assert len(owner.questions) == 2 and owner.questions[1].startswith("Not accepted. The server asks: “Two")


def test_a_node_is_searched_and_the_agent_started_with_one_sign_in(
    two_hops: TwoHops, join: Callable[..., Connection]
) -> None:
    connection = join()
    found = find_pythons(connection, "work", sys.executable, RUNTIME.monotonic)
    stream = dial(connection, pack(), found.python.path, "work")
    assert stream.read().startswith(MAGIC)
    eventually(lambda: sign_ins(two_hops) == [1, 1], "one has signed in")
    stream.close()
