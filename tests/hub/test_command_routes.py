"""Commands that lead on from the last host, and this machine: real programs, behind a real OpenSSH."""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from connecting import connect_route
from dialling import in_thread
from sshd import TwoHops, make_key
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.errors import AuthError, ConnectError, GpuKernelError, RouteError
from jupyter_gpu_kernel.hub.connections import command_errors
from jupyter_gpu_kernel.hub.connections.commands import CommandConnection
from jupyter_gpu_kernel.hub.node.shared_connection import hop_names
from jupyter_gpu_kernel.hub.transport import process
from jupyter_gpu_kernel.hub.transport.connection import Connection

pytestmark = pytest.mark.full

Join = Callable[..., Connection]


class Login:
    """A login node with a key that only it has, and with which it can sign in to the work node."""

    def __init__(self, hops: TwoHops) -> None:
        self.hops = hops
        self.key = make_key(hops.folder / "key_of_login")
        hops.work.authorized.write_text(Path(f"{self.key}.pub").read_text())
        self.config = hops.folder / "config_of_login"
        self.config.write_text(
            f"Host work\n  HostName 127.0.0.1\n  Port {hops.work.port}\n  IdentityFile {self.key}\n"
            f"Host *\n  IdentityAgent none\n  IdentitiesOnly yes\n  UserKnownHostsFile {hops.known_hosts}\n"
            "  GlobalKnownHostsFile none\n"
        )
        self.ssh_work = f"ssh -F {self.config} work"

    def program(self, name: str, script: str) -> str:
        """A shell script on the login node; its path."""
        path = self.hops.login.home / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)


@pytest.fixture
def login(two_hops: TwoHops) -> Login:
    return Login(two_hops)


@pytest.fixture
def join(two_hops: TwoHops) -> Iterator[Join]:
    """`connect` to the login node, and through these commands; closed afterwards."""
    made: list[Connection] = []

    def joined(
        *via: str, route: tuple[str, ...] = ("login",), reported: list[tuple[str, str]] | None = None
    ) -> Connection:
        connection = connect_route(
            route,
            config=two_hops.ssh_config,
            via=via,
            progress=lambda hop, step: reported.append((hop, step)) if reported is not None else None,
            trust_file=two_hops.trust_file,
        )
        made.append(connection)
        return connection

    yield joined
    for connection in made:
        connection.close()


def script(connection: Connection, text: str) -> str:
    return connection.run("/bin/sh", stdin=text.encode()).stdout.decode()


def failure(join: Join, *via: str) -> GpuKernelError:
    with pytest.raises(GpuKernelError) as caught:
        join(*via)
    return caught.value


def test_a_key_that_only_the_login_node_has_leads_on(login: Login, join: Join) -> None:
    login.hops.login.restart(AllowTcpForwarding="no")
    reported: list[tuple[str, str]] = []
    connection = join(login.ssh_work, reported=reported)
    assert script(connection, "echo $HOME") == f"{login.hops.work.home}\n"
    name = reported[-1][0]
    assert name.startswith("ssh -F ") and name.endswith(" on login")
    assert reported[-1][1] == "run" and [step[:2] for step in connection.steps] == reported


def test_what_a_command_answers_is_complete(login: Login, join: Join) -> None:
    done = join(login.ssh_work).run("/bin/sh", stdin=b"printf rest; echo words >&2; exit 3\n")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"rest", b"words\n")
    assert join(login.ssh_work).run("cat", stdin=b"\0in").stdout == b"\0in"


def test_bytes_pass_unchanged_both_ways_at_once(login: Login, join: Join) -> None:
    stream = join(login.ssh_work, "env A=1 setsid -w").open("cat")
    data = bytes(range(256)) * 8000
    writer = threading.Thread(target=stream.write, args=(data,))
    writer.start()
    received = hashlib.sha256()
    missing = len(data)
    while missing:
        received.update(more := stream.read(1 << 20))
        missing -= len(more)
        assert more
    writer.join(DEADLINE)
    assert received.digest() == hashlib.sha256(data).digest()
    stream.close()


def test_commands_follow_each_other_with_their_words_unchanged(login: Login, join: Join) -> None:
    """The second one is a word for the first one's remote shell, and for nobody else."""
    wrapper = login.program("with words", 'export WORDS="$1"; shift; exec "$@"')
    connection = join(login.ssh_work, f"'{wrapper}' 'a  \"b\" $HOME *'", "env MORE=1")
    assert script(connection, 'echo "$WORDS $MORE"') == 'a  "b" $HOME * 1\n'
    assert [hop.count(" on ") for hop, step, _ in connection.steps if step == "run"] == [1, 2, 3]


def test_each_command_is_run_once_to_connect(login: Login, join: Join) -> None:
    counted = login.program("counted", 'echo >>"$0.runs"; exec "$@"')
    join(counted, f"{counted} env A=1", "env B=1")
    assert len(Path(f"{counted}.runs").read_text().splitlines()) == 2


def test_what_commands_and_start_up_files_print_is_ignored(login: Login, join: Join) -> None:
    noisy = login.program("noisy", 'echo welcome; echo to all >&2; exec "$@"')
    assert script(join(noisy, f"{noisy} env"), "echo here") == "here\n"


def test_the_command_that_fails_is_named_with_its_words(login: Login, join: Join) -> None:
    failing = login.program("failing", "echo no such container: box >&2; exit 3")
    error = failure(join, "env A=1", f"{failing} box")
    assert type(error) is ConnectError and error.hop == hop_names("login", ["env A=1", f"{failing} box"])[-1]
    assert error.cause.startswith("ended with status 3") and "no such container: box" in error.cause
    assert "by hand" in error.remedy
    eventually(lambda: not login.hops.login.sessions(), "the connection is closed")
    assert [(hop, step) for hop, step, _ in error.steps[-2:]] == [
        ("env A=1 on login", "run"),
        (error.hop, "run"),
    ]


@pytest.mark.parametrize("before", [(), ("env A=1",)])
def test_a_program_that_is_not_there(join: Join, before: tuple[str, ...]) -> None:
    error = failure(join, *before, "no-such-program exec box")
    assert error.hop.startswith("no-such-program exec box on ") and "“no-such-program”" in error.cause
    assert "not found" in error.cause and "PATH" in error.remedy


def test_a_command_that_would_ask_for_a_password(login: Login, join: Join) -> None:
    login.hops.work.authorized.write_text("")
    error = failure(join, login.ssh_work)
    assert isinstance(error, AuthError) and "Permission denied" in error.cause and "key" in error.remedy
    assert not error.login  # nobody could be asked


def test_a_host_that_the_command_does_not_know(login: Login, join: Join) -> None:
    error = failure(join, login.ssh_work.replace("ssh ", f"ssh -o UserKnownHostsFile={login.key}.none "))
    assert "host's key" in error.cause and "Host key verification failed" in error.cause
    assert "accept the host key" in error.remedy


def test_a_command_that_allocates_a_terminal_is_refused(login: Login, join: Join) -> None:
    error = failure(join, login.ssh_work.replace("ssh ", "ssh -tt "))
    assert "terminal" in error.cause and "-t" in error.remedy


def test_a_command_that_prints_without_end(join: Join) -> None:
    assert "prints without end" in failure(join, "sh -c yes").cause


def test_a_command_whose_end_is_that_of_all_processes_behind_it_is_refused(join: Join) -> None:
    """As `docker run`: a kernel would end at every drop."""
    command = "unshare --user --map-root-user --pid --fork --mount-proc"
    if subprocess.run([*shlex.split(command), "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces on this machine")
    error = failure(join, command)
    assert "end with it" in error.cause and "docker exec -i" in error.remedy
    assert [step for _, step, _ in error.steps][-2:] == ["sign in", "run"]
    assert "end with it" in failure(join, f"{command} sh -c '\"$@\"; true' sh").cause


def test_a_command_that_holds_back_output_is_refused(join: Join) -> None:
    """As `srun` does without --unbuffered."""
    command = "sh -c '\"$@\" | sed -u s/a/a/' sh"
    with pytest.raises(ConnectError, match="whole lines") as caught:
        CommandConnection(join(), ["srun"], [command], lambda hop, step: None, patience=0.5)
    assert "--unbuffered" in caught.value.remedy
    connection = CommandConnection(join(), ["srun"], ["env"], lambda hop, step: None)
    assert script(connection, "echo 1") == "1\n"


def test_closing_the_connection_ends_the_commands(login: Login, join: Join) -> None:
    connection = join(login.ssh_work)
    stream = connection.open("cat")
    ended = in_thread(lambda: stream.read(1))
    connection.close()
    assert ended.get(timeout=DEADLINE) == b"" and connection.closed and not connection.alive()


def test_a_drop_behind_the_command_ends_the_stream_and_not_the_connection(login: Login, join: Join) -> None:
    connection = join(login.ssh_work)
    stream = connection.open("cat")
    login.hops.work.drop()
    assert stream.read(1) == b"" and stream.wait(DEADLINE) == 255
    assert connection.alive() and script(connection, "echo again") == "again\n"


# --- this machine


needs_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the agent needs Linux")


@needs_linux
def test_this_machine_runs_commands_in_the_home_folder(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_TOKEN", "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    connection = join(route=("localhost",))
    assert connection.alive() and connection.responds(0) and not connection.interactive
    reported = script(connection, 'pwd; echo "$HOME$JUPYTER_TOKEN $CUDA_VISIBLE_DEVICES"')
    assert reported == f"{Path.home()}\n{os.environ['HOME']} 1,2\n"
    stream = connection.open("cat")
    connection.close()
    assert not connection.alive() and stream.read(1) == b"" and stream.wait(DEADLINE) is not None


@needs_linux
def test_commands_lead_on_from_this_machine(login: Login, join: Join) -> None:
    connection = join(login.ssh_work, route=("localhost",))
    assert script(connection, "echo $HOME") == f"{login.hops.work.home}\n"


@needs_linux
def test_a_program_that_this_machine_lacks(join: Join) -> None:
    with pytest.raises(ConnectError, match=r"“no-such-program” cannot be run: No such file") as caught:
        join("no-such-program exec box", route=("localhost",))
    assert caught.value.hop == "localhost" and "installed" in caught.value.remedy


@needs_linux
def test_a_command_has_no_terminal_at_which_it_could_ask(join: Join) -> None:
    session = script(join(route=("localhost",)), "cut -d ' ' -f 6 /proc/$$/stat")
    assert int(session) != os.getsid(0)


@needs_linux
def test_closing_a_stream_of_this_machine_ends_its_process(
    join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_GRACE", 0.1)
    connection = join(route=("localhost",))
    for command in ("cat", "sleep 1000"):
        stream = connection.open(command)
        ended = in_thread(lambda stream=stream: stream.read(1))
        stream.close()
        assert ended.get(timeout=DEADLINE) == b""
        with pytest.raises(OSError):
            stream.write(b"x" * 10_000_000)
        assert stream.wait(DEADLINE) is not None


@needs_linux
def test_a_short_command_is_over_although_a_process_it_left_holds_its_output(join: Join) -> None:
    assert script(join(route=("localhost",)), "sleep 1000 & echo $!").strip().isdigit()


def test_other_systems_cannot_run_the_agent(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(RouteError, match="on Linux only") as caught:
        join(route=("localhost",))
    assert caught.value.hop == "localhost" and "docker" in caught.value.remedy


# --- words of programs that cannot be had here, as they print them


@pytest.mark.parametrize(
    ("status", "output", "cause"),
    [
        (0, "", "ended before it gave a shell, without an error"),
        (1, "the input device is not a TTY", "it wants a terminal"),
        (
            1,
            "Error response from daemon: No such container: box",
            "ended with status 1 before it gave a shell",
        ),
        (127, 'OCI runtime exec failed: exec: "/bin/sh": stat /bin/sh: no such file', "was not found"),
        (255, "FATAL:   could not open image /home/a/image.sif", "ended with status 255"),
        (
            1,
            "srun: error: Unable to confirm allocation for job 17: Invalid job id specified",
            "ended with status 1",
        ),
        (-1, "", "ended before it gave a shell"),
    ],
)
def test_words_of_other_programs(status: int, output: str, cause: str) -> None:
    error = command_errors.ended("docker exec box on login", "docker", status, output)
    assert cause in error.cause and output in error.cause and error.remedy
