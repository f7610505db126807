"""Two hops of real OpenSSH: what goes through, what ends, and what is said when a hop does not let us by."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest
from sshd import TwoHops, free_port, make_key
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import AuthError, ConnectError, HostKeyError, RouteError
from jupyter_gpu_kernel.hub.node.shared_connection import RouteSettings, SharedConnection
from jupyter_gpu_kernel.hub.ssh import Asker
from jupyter_gpu_kernel.hub.ssh.connect import SSHConnection, connect
from jupyter_gpu_kernel.hub.ssh.route import Hop

Dial = Callable[..., SSHConnection]


@pytest.fixture
def dial(two_hops: TwoHops) -> Iterator[Dial]:
    """`connect` over both hops, closed afterwards; keywords replace parts of the last hop or of the call."""
    made: list[SSHConnection] = []

    def dialled(
        route: tuple[Hop, ...] | None = None, *, ask: Asker | None = None, timeout: float = 25.0
    ) -> SSHConnection:
        connection = connect(route or two_hops.hops, ask=ask, timeout=timeout, trust_file=two_hops.trust_file)
        made.append(connection)
        return connection

    yield dialled
    for connection in made:
        connection.close()


class Owner:
    """Answers what the test says, and remembers the questions."""

    def __init__(self, *secrets: str, knows: bool = True) -> None:
        self.secrets, self.knows = list(secrets), knows
        self.questions: list[str] = []

    def secret(self, hop: str, prompt: str) -> str:
        self.questions.append(prompt)
        return self.secrets.pop(0)

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        self.questions.append(f"{hop} {fingerprint}")
        return self.knows


def behind(two_hops: TwoHops, **changes: object) -> tuple[Hop, ...]:
    """The route with parts of the last hop replaced."""
    login, work = two_hops.hops
    return (login, replace(work, **changes))  # type: ignore[arg-type]


# --- what goes through


def test_commands_run_on_the_last_hop(dial: Dial, two_hops: TwoHops) -> None:
    done = dial().run('cat; echo "$HOME" >&2; exit 3', stdin=b"in")
    assert (done.returncode, done.stdout) == (3, b"in")
    assert done.stderr.decode().strip() == str(two_hops.work.home)


def test_each_step_of_each_hop_is_timed_and_told(two_hops: TwoHops) -> None:
    told: list[tuple[str, str]] = []
    connection = connect(
        two_hops.hops,
        ask=None,
        progress=lambda hop, step: told.append((hop, step)),
        trust_file=two_hops.trust_file,
    )
    connection.close()
    steps = [(hop, step) for hop in ("login", "work") for step in ("reach", "host key", "sign in")]
    assert told == steps
    assert [(hop, step) for hop, step, _ in connection.steps] == steps


def test_no_agent_is_forwarded(dial: Dial, tmp_path: Path) -> None:
    """Whoever rules a hop could sign in everywhere else with it."""
    connection = dial()
    stream = connection.open('echo "agent:$SSH_AUTH_SOCK"')
    assert stream.read() == b"agent:\n"
    assert connection.run('echo "agent:$SSH_AUTH_SOCK"').stdout == b"agent:\n"


def test_a_stream_echoes(dial: Dial) -> None:
    stream = dial().open("cat")
    for text in (b"a", b"bc" * 100):
        stream.write(text)
        assert read_exactly(stream.read, len(text)) == text
    assert stream.exit_status is None


def read_exactly(read: Callable[[], bytes], size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = read()
        assert more
        data += more
    return data


def test_megabytes_pass_unchanged_both_ways_at_once(dial: Dial) -> None:
    stream = dial().open("cat")
    data = os.urandom(9_000_000)
    writer = threading.Thread(target=stream.write, args=(data,))
    writer.start()
    received = read_exactly(stream.read, len(data))
    writer.join(DEADLINE)
    assert hashlib.sha256(received).digest() == hashlib.sha256(data).digest()


def test_a_flood_on_stderr_stops_nothing_and_its_end_is_kept(dial: Dial) -> None:
    stream = dial().open("head -c 5000000 /dev/zero >&2; echo last words >&2; echo out")
    assert read_exactly(stream.read, 4) == b"out\n"
    assert stream.read() == b""
    assert stream.stderr_tail().endswith("last words\n")
    assert len(stream.stderr_tail()) <= 64 * 1024


def test_a_banner_and_a_noisy_login_are_only_bytes(dial: Dial, two_hops: TwoHops, tmp_path: Path) -> None:
    (tmp_path / "banner").write_text("Authorised use only!\n")
    two_hops.login.restart(Banner=str(tmp_path / "banner"))
    two_hops.work.shell('echo "module system loaded"; exec sh -c "$SSH_ORIGINAL_COMMAND"')
    assert dial().run("echo hello").stdout == b"module system loaded\nhello\n"


@pytest.mark.parametrize(
    "login", [{"MaxSessions": "0"}, {"ForceCommand": "/bin/false"}, {"MaxSessions": "1"}]
)
def test_a_jump_host_that_runs_no_command_for_us_still_lets_us_through(
    dial: Dial, two_hops: TwoHops, login: dict[str, str]
) -> None:
    two_hops.login.restart(**login)
    assert dial().run("echo hello").stdout == b"hello\n"


def test_one_session_per_connection_is_enough_for_one_after_another(dial: Dial, two_hops: TwoHops) -> None:
    two_hops.work.restart(MaxSessions="1")
    connection = dial()
    for number in range(5):
        assert connection.run(f"echo {number}").stdout == b"%d\n" % number
    stream = connection.open("cat")
    with pytest.raises(ConnectError, match="MaxSessions"):
        connection.run("echo one too many")
    stream.write(b"still here")
    assert stream.read() == b"still here"


def test_a_command_that_does_not_end_is_given_up(dial: Dial) -> None:
    connection = dial()
    with pytest.raises(ConnectError, match=r"did not end .* sleep 600"):
        connection.run("sleep 600", timeout=0.5)
    assert connection.run("echo on").stdout == b"on\n"


def test_what_a_command_leaves_running_is_not_waited_for(dial: Dial) -> None:
    """As a daemon that a start-up file of the shell begins: it holds the command's output open."""
    done = dial().run("sleep 600 & echo $!; echo said >&2; exit 3", timeout=120)
    os.kill(int(done.stdout), signal.SIGKILL)
    assert (done.returncode, done.stderr) == (3, b"said\n")


# --- ends


def in_thread(function: Callable[[], object]) -> SimpleQueue[object]:
    """What `function` returned or raised, once it has."""
    results: SimpleQueue[object] = SimpleQueue()

    def run() -> None:
        try:
            results.put(function())
        except Exception as error:  # the test looks at it
            results.put(error)

    threading.Thread(target=run, daemon=True).start()
    return results


@pytest.mark.parametrize("node", ["login", "work"])
def test_a_reader_notices_a_drop(dial: Dial, two_hops: TwoHops, node: str) -> None:
    connection = dial()
    stream = connection.open("cat")
    stream.write(b"x")
    assert stream.read() == b"x"
    result = in_thread(stream.read)
    getattr(two_hops, node).drop()
    assert result.get(timeout=DEADLINE) == b""
    with pytest.raises(OSError):
        for _ in range(100):  # the first may still be taken
            stream.write(b"x")
    with pytest.raises(ConnectError, match="lost"):
        connection.run("true")
    assert not connection.alive()
    assert dial().run("echo again").stdout == b"again\n"


def test_whether_a_connection_answers(dial: Dial, two_hops: TwoHops) -> None:
    connection = dial()
    with two_hops.work.stalled():
        assert not connection.responds(0.5)
        assert connection.alive()
    assert connection.responds(DEADLINE)
    two_hops.work.drop()
    assert not connection.responds(DEADLINE)
    assert dial(ask=Owner()).interactive is False


def test_close_frees_reader_and_writer(dial: Dial) -> None:
    connection = dial()
    reading, writing = connection.open("sleep 600"), connection.open("sleep 600")
    reader = in_thread(reading.read)
    writer = in_thread(lambda: writing.write(b"x" * 50_000_000))
    connection.close()
    assert reader.get(timeout=DEADLINE) == b""
    assert isinstance(writer.get(timeout=DEADLINE), OSError)
    assert not connection.alive()


def test_closing_a_stream_frees_its_reader_and_ends_its_command(dial: Dial) -> None:
    connection = dial()
    stream = connection.open("echo $$; exec cat")
    pid = int(stream.read())
    reader = in_thread(stream.read)
    stream.close()
    assert reader.get(timeout=DEADLINE) == b""
    gone = f"while kill -0 {pid} 2>/dev/null; do sleep 0.05; done"
    assert connection.run(gone, timeout=DEADLINE).returncode == 0


def test_the_exit_status_is_known_after_the_end(dial: Dial) -> None:
    stream = dial().open("echo out; exit 7")
    assert b"".join(iter(stream.read, b"")) == b"out\n"
    assert stream.wait(DEADLINE) == 7


# --- host keys


def test_an_unknown_host_is_refused_before_any_credential(dial: Dial, two_hops: TwoHops) -> None:
    two_hops.known_hosts.write_text(two_hops.login.known_hosts_line())
    with pytest.raises(HostKeyError, match="SHA256:") as caught:
        dial()
    assert caught.value.hop == "work"
    assert "login NAME" in caught.value.remedy
    two_hops.work.wait_for_log("Connection closed by")
    assert not any("publickey" in line for line in two_hops.work.log)


def test_a_host_the_owner_knows_is_remembered_in_our_own_file(dial: Dial, two_hops: TwoHops) -> None:
    two_hops.known_hosts.write_text("")
    owner = Owner()
    dial(ask=owner)
    assert [question.split()[0] for question in owner.questions] == ["login", "work"]
    assert two_hops.known_hosts.read_text() == ""
    assert two_hops.trust_file.read_text() == (
        two_hops.login.known_hosts_line() + two_hops.work.known_hosts_line()
    )
    if sys.platform != "win32":
        assert stat.S_IMODE(two_hops.trust_file.stat().st_mode) == 0o600
    assert dial().alive()


def test_the_time_the_owner_takes_is_not_counted(dial: Dial, two_hops: TwoHops) -> None:
    class Slow(Owner):
        def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
            threading.Event().wait(2.0)  # longer than the whole time of `connect`
            return True

    two_hops.known_hosts.write_text("")
    assert dial(ask=Slow(), timeout=1.9).run("echo on").stdout == b"on\n"


def test_a_host_the_owner_does_not_know_is_refused(dial: Dial, two_hops: TwoHops) -> None:
    two_hops.known_hosts.write_text("")
    with pytest.raises(HostKeyError, match="not known"):
        dial(ask=Owner(knows=False))
    assert not two_hops.trust_file.exists()


def test_a_changed_host_is_refused_even_if_the_owner_would_agree(
    dial: Dial, two_hops: TwoHops, tmp_path: Path
) -> None:
    two_hops.work.host_key = make_key(tmp_path / "new_host_key")
    two_hops.work.restart()
    owner = Owner()
    with pytest.raises(HostKeyError, match="changed") as caught:
        dial(ask=owner)
    assert caught.value.hop == "work"
    assert owner.questions == []


def test_the_known_key_type_is_asked_for_where_a_host_has_several(
    dial: Dial, two_hops: TwoHops, tmp_path: Path
) -> None:
    first, two_hops.work.host_key = two_hops.work.host_key, make_key(tmp_path / "ecdsa_host_key", "ecdsa")
    two_hops.known_hosts.write_text(two_hops.login.known_hosts_line() + two_hops.work.known_hosts_line())
    two_hops.work.restart(HostKey=f"{two_hops.work.host_key}\nHostKey {first}")
    assert dial().alive()


# --- keys


def test_a_refused_key_is_named(dial: Dial, two_hops: TwoHops, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other_key")
    with pytest.raises(AuthError, match="permission denied") as caught:
        dial(behind(two_hops, identity_files=(other,)))
    assert str(other) in caught.value.cause
    assert "authorized_keys" in caught.value.remedy
    assert caught.value.hop == "work"


def test_an_unknown_user_is_refused_by_name(dial: Dial, two_hops: TwoHops) -> None:
    with pytest.raises(AuthError, match="nobody-of-that-name") as caught:
        dial(behind(two_hops, user="nobody-of-that-name"))
    assert "user name" in caught.value.remedy


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX file modes")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o601])
def test_a_key_others_can_read_is_not_used(dial: Dial, two_hops: TwoHops, mode: int) -> None:
    two_hops.key.chmod(mode)
    with pytest.raises(AuthError, match=f"{mode:04o}") as caught:
        dial()
    assert f"chmod 600 {two_hops.key}" in caught.value.remedy
    assert caught.value.hop == "login"
    assert not any("Accepted publickey" in line for line in two_hops.login.log)


def locked_key(two_hops: TwoHops, tmp_path: Path) -> Path:
    key = make_key(tmp_path / "locked key", passphrase="open sesame")
    with two_hops.work.authorized.open("a") as file:
        file.write(Path(f"{key}.pub").read_text())
    return key


def test_a_locked_key_opens_with_its_passphrase(dial: Dial, two_hops: TwoHops, tmp_path: Path) -> None:
    key = locked_key(two_hops, tmp_path)
    owner = Owner("wrong", "open sesame")
    assert dial(behind(two_hops, identity_files=(key,)), ask=owner).alive()
    assert owner.questions == [f"Passphrase of {key}: ", f"Wrong passphrase. Passphrase of {key}: "]


def test_a_locked_key_without_anybody_to_ask_names_the_remedies(
    dial: Dial, two_hops: TwoHops, tmp_path: Path
) -> None:
    key = locked_key(two_hops, tmp_path)
    with pytest.raises(AuthError, match="needs its passphrase") as caught:
        dial(behind(two_hops, identity_files=(key,)))
    assert f"ssh-add '{key}'" in caught.value.remedy
    assert "jupyter gpu-kernel login" in caught.value.remedy


def test_a_key_that_is_none_is_named(dial: Dial, two_hops: TwoHops, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("no key")
    broken.chmod(0o600)
    with pytest.raises(AuthError, match=f"{broken}: cannot be used"):
        dial(behind(two_hops, identity_files=(broken,)))


# --- ways that end before


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("where", ["first hop", "through the jump"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"host": "no-such-host.invalid"}, "cannot be resolved"),
        ({"port": "free"}, "connection refused"),
        ({"port": "silent"}, "no SSH version string"),
    ],
)
def test_an_unreachable_hop_is_named_with_cause_and_remedy(
    dial: Dial, two_hops: TwoHops, silent: int, where: str, change: dict[str, object], words: str
) -> None:
    ports = {"free": free_port(), "silent": silent}
    change = {key: ports.get(str(value), value) for key, value in change.items()}
    route = behind(two_hops, **change)
    with pytest.raises(ConnectError, match=words) as caught:
        dial(route if where == "through the jump" else route[1:], timeout=3)
    assert caught.value.hop == "work"
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("label", "host", "said"),
    [
        ("alice@127.0.0.1", "127.0.0.1", r"alice@127\.0\.0\.1: port \d+: connection refused"),
        ("gpu2", "127.0.0.1", r"gpu2: 127\.0\.0\.1 port \d+: connection refused"),
        (
            "no-such-host.invalid",
            "no-such-host.invalid",
            r"no-such-host\.invalid: its host name cannot be resolved",
        ),
        ("gpu2", "no-such-host.invalid", r"gpu2: the host name no-such-host\.invalid cannot be resolved"),
    ],
)
def test_a_host_is_named_once(dial: Dial, two_hops: TwoHops, label: str, host: str, said: str) -> None:
    hop = replace(two_hops.hops[-1], label=label, host=host, port=free_port())
    with pytest.raises(ConnectError) as caught:
        dial([hop], timeout=3)
    assert re.match(said, str(caught.value)), str(caught.value)


def test_a_jump_host_that_forbids_forwarding_is_named(dial: Dial, two_hops: TwoHops) -> None:
    two_hops.login.restart(AllowTcpForwarding="no")
    with pytest.raises(ConnectError, match="AllowTcpForwarding") as caught:
        dial()
    assert caught.value.hop == "login"
    assert "another login node" in caught.value.remedy


def test_a_server_with_no_common_algorithm_is_told_with_both_lists(dial: Dial, two_hops: TwoHops) -> None:
    two_hops.work.restart(Ciphers="chacha20-poly1305@openssh.com")
    with pytest.raises(ConnectError, match=r"cipher: it has chacha20.*; we have aes128-gcm") as caught:
        dial()
    assert caught.value.hop == "work"


def test_a_busy_server_is_tried_again(dial: Dial, two_hops: TwoHops) -> None:
    two_hops.work.restart(MaxStartups="1", LogLevel="DEBUG1")
    with socket.create_connection(("127.0.0.1", two_hops.work.port)) as hog:
        assert hog.recv(4) == b"SSH-"
        result = in_thread(dial)
        two_hops.work.wait_for_log("MaxStartups")
    connection = result.get(timeout=DEADLINE)
    assert isinstance(connection, SSHConnection), connection
    assert connection.alive()


class Cutting:
    """In front of a server: the first connections end after so many of the server's bytes; later ones pass."""

    def __init__(self, server: int, after: int, times: int) -> None:
        self._server, self._after, self._left = server, after, times
        self.taken = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._serve)]

    def __enter__(self) -> Cutting:
        self._threads[0].start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(DEADLINE)
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self.taken += 1
                limit = self._after if self.taken <= self._left else sys.maxsize
                self._threads.append(threading.Thread(target=self._join, args=(client, limit)))
                self._threads[-1].start()

    def _join(self, client: socket.socket, limit: int) -> None:
        with client, socket.create_connection(("127.0.0.1", self._server)) as server:
            back = threading.Thread(target=pass_on, args=(server, client, limit))
            back.start()
            pass_on(client, server, sys.maxsize)
            back.join()


def pass_on(source: socket.socket, target: socket.socket, limit: int) -> None:
    """So many bytes; then both sockets are shut down."""
    with contextlib.suppress(OSError):  # the other direction has ended it
        while limit and (data := source.recv(min(65536, limit))):
            target.sendall(data)
            limit -= len(data)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("after", [0, 100], ids=["before the greeting", "in the key exchange"])
def test_a_connection_that_ends_before_anybody_signed_in_is_made_anew(
    dial: Dial, two_hops: TwoHops, after: int
) -> None:
    with Cutting(two_hops.work.port, after, times=1) as cutting:
        connection = dial(behind(two_hops, port=cutting.port), ask=Owner())
        assert connection.alive() and cutting.taken == 2
        connection.close()


def test_a_connection_that_always_ends_in_the_key_exchange_is_given_up(dial: Dial, two_hops: TwoHops) -> None:
    with Cutting(two_hops.work.port, 100, times=100) as cutting:
        with pytest.raises(ConnectError, match="the connection was lost") as caught:
            dial(behind(two_hops, port=cutting.port), ask=Owner())
        assert caught.value.hop == "work" and cutting.taken == 2


def test_a_shared_connection_that_another_user_of_it_closed_is_made_anew(two_hops: TwoHops) -> None:
    """It answered that one too late, say."""
    way = RouteSettings(two_hops.route, (), str(two_hops.ssh_config))
    shared = SharedConnection(way, two_hops.trust_file)
    used: list[SSHConnection] = []

    def work(connection: SSHConnection) -> bytes:
        used.append(connection)
        if len(used) == 1:
            shared.close()
        return connection.run("echo here").stdout

    assert shared.run(None, work) == b"here\n" and len(used) == 2
    shared.close()


def test_a_route_without_ssh_hops_is_not_for_us(two_hops: TwoHops) -> None:
    with pytest.raises(RouteError):
        connect((Hop("localhost", "local", "localhost"),), ask=None, trust_file=two_hops.trust_file)


def test_a_command_that_prints_without_end(dial: Dial) -> None:
    with pytest.raises(ConnectError, match="printed more than 4 MiB"):
        dial().run("yes")
