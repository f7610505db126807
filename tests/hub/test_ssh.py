"""Two hops of real OpenSSH: what goes through, and what ends."""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from connecting import connect
from dialling import Dial, Owner, in_thread
from sshd import TwoHops
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.errors import ConnectError
from jupyter_gpu_kernel.hub.node.shared_connection import RouteSettings, describe
from jupyter_gpu_kernel.hub.ssh.hostkeys import fingerprint

pytestmark = pytest.mark.full


def test_commands_run_on_the_last_hop(dial: Dial, two_hops: TwoHops) -> None:
    done = dial().run('cat; echo "$HOME" >&2; exit 3', stdin=b"in")
    assert (done.returncode, done.stdout) == (3, b"in")
    assert done.stderr.decode().strip() == str(two_hops.work.home)


def test_a_connection_tells_what_speaks_ssh_and_the_host_key_of_each_hop(
    dial: Dial, two_hops: TwoHops, transport: str
) -> None:
    settings = RouteSettings(("work",), (), None)
    keys = [
        f"of {hop}: {fingerprint(base64.b64decode(server.known_hosts_line().split()[2]))}"
        for hop, server in (("login", two_hops.login), ("work", two_hops.work))
    ]
    reported = describe(dial(), settings)
    assert reported.startswith("by paramiko;" if transport == "paramiko" else "by the system's ssh (")
    assert reported.endswith(f"; host key {', '.join(keys)}")
    commands = describe(dial(), settings._replace(via=("srun --jobid=7",)))
    assert commands == f"{reported}; then by srun --jobid=7 on work"


def test_each_step_of_each_hop_is_timed_and_reported(two_hops: TwoHops) -> None:
    reported: list[tuple[str, str]] = []
    connection = connect(
        two_hops.hops,
        ask=None,
        progress=lambda hop, step: reported.append((hop, step)),
        trust_file=two_hops.trust_file,
    )
    connection.close()
    steps = [(hop, step) for hop in ("login", "work") for step in ("reach", "host key", "sign in")]
    assert reported == steps
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
    assert stream.wait(0) is None


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


def test_output_after_the_exit_status_is_passed_on(dial: Dial, transport: str, tmp_path: Path) -> None:
    """The ssh program tells the status at the end of the output."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    stream = dial().open(f"cat {shlex.quote(str(fifo))} & echo early")
    assert read_exactly(stream.read, 6) == b"early\n"
    if transport == "paramiko":
        assert stream.wait(DEADLINE) == 0
    fifo.write_text("late\n")
    assert read_exactly(stream.read, 5) == b"late\n"
    assert stream.read() == b""
    assert stream.wait(DEADLINE) == 0
    stream.close()


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
    assert dial().run("echo hello").stdout == b"hello\n"


@pytest.mark.parametrize(
    "login", [{"MaxSessions": "0"}, {"ForceCommand": "/bin/false"}, {"MaxSessions": "1"}]
)
def test_a_jump_host_that_runs_no_command_for_us_still_lets_us_through(
    dial: Dial, two_hops: TwoHops, login: dict[str, str]
) -> None:
    two_hops.login.restart(**login)
    assert dial().run("echo hello").stdout == b"hello\n"


def test_one_session_per_connection_is_enough_for_one_after_another(
    dial: Dial, two_hops: TwoHops, transport: str
) -> None:
    two_hops.work.restart(MaxSessions="1")
    connection = dial()
    for number in range(5):
        assert connection.run(f"echo {number}").stdout == b"%d\n" % number
    stream = connection.open("cat")
    if transport == "direct":  # where each stream has a connection of its own
        assert connection.run("echo one more").stdout == b"one more\n"
    else:
        with pytest.raises(ConnectError, match="MaxSessions"):
            connection.run("echo one too many")
    stream.write(b"still here")
    assert stream.read() == b"still here"


def test_a_command_that_does_not_end_is_given_up(dial: Dial, transport: str) -> None:
    connection = dial()
    with pytest.raises(ConnectError) as raised:
        connection.run("echo first; printf 'Module?\\033[0m'; sleep 600", timeout=2)
    assert raised.value.cause.startswith("a command did not end within 2 s: echo first; printf")
    assert raised.value.cause.endswith("; the last line of its output: Module??[0m")
    connection = dial() if transport == "direct" else connection  # it ended with the shell of the command
    assert connection.run("echo on").stdout == b"on\n"


def test_what_a_command_leaves_running_is_not_waited_for(dial: Dial) -> None:
    """As a daemon that a start-up file of the shell begins: it holds the command's output open."""
    done = dial().run("sleep 600 & echo $!; echo said >&2; exit 3", timeout=120)
    os.kill(int(done.stdout), signal.SIGKILL)
    assert (done.returncode, done.stderr) == (3, b"said\n")


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
    eventually(lambda: not connection.alive(), "the connection counts as lost")
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
    assert connection.run("echo on").stdout == b"on\n"  # after what was asked meanwhile
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


def test_a_command_that_prints_without_end(dial: Dial) -> None:
    with pytest.raises(ConnectError, match="printed more than 4 MiB"):
        dial().run("yes")
