"""SSH servers that mean harm: whatever they send is bounded in bytes, in time, in questions, and is inert."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
import psutil
import pytest
from connecting import connect, transports
from ssh_server import SignInRules, SshServer
from sshd import TwoHops
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import AuthError, ConnectError, GpuKernelError
from jupyter_gpu_kernel.hub import ssh
from jupyter_gpu_kernel.hub.ssh.config.route import Hop
from jupyter_gpu_kernel.hub.ssh.sign_in.deadline import Deadline, TimedAsker
from jupyter_gpu_kernel.hub.ssh.transport import WINDOW

MIB = 1024 * 1024
IGNORE = struct.pack(">IB", 12, 6) + bytes([2]) + bytes(10)  # a packet that says nothing, unencrypted
LOOK = "\x1b[2J\x1b[31mcleared\nbob@gpu2: Password of bob:\u202e \x07"


class Speaker:
    """Takes one connection at a time and sends what the test gives, until the other side hangs up."""

    def __init__(self, beginning: bytes, again: bytes) -> None:
        self.sent = 0
        self._beginning, self._again = beginning, again
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            with client:
                try:
                    client.sendall(self._beginning)
                    while True:
                        self.sent += client.send(self._again)
                except OSError:
                    continue  # it hung up

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(DEADLINE)


@pytest.fixture
def speaker() -> Iterator[Callable[[bytes, bytes], Speaker]]:
    made: list[Speaker] = []

    def make(beginning: bytes, again: bytes) -> Speaker:
        made.append(Speaker(beginning, again))
        return made[-1]

    yield make
    for one in made:
        one.close()


GREETING = b"SSH-2.0-OpenSSH_9.2\r\n"


@pytest.mark.parametrize(
    ("beginning", "again", "words"),
    [
        (b"", b"x" * 65536, "without end instead of its version string"),
        (b"", b"welcome\r\n" * 8192, "protocol version"),
        (GREETING, struct.pack(">I", 2**31 + 4) + bytes(65536), "packet of"),
        (GREETING, struct.pack(">I", 3) + bytes(64), "Invalid packet"),
        (GREETING, IGNORE * 1000, "key exchange|does not greet"),
        (b"SSH-1.5-old\r\n", b"x", "Incompatible version"),
        (b"SSH-\xff\x1b[2J\r\n", b"x", "SSH"),
    ],
    ids=["line", "lines", "packet", "short packet", "nothing", "old", "control characters"],
)
def test_a_server_that_floods_is_refused_in_time_and_little_is_kept(
    speaker: Callable[[bytes, bytes], Speaker], tmp_path: Path, beginning: bytes, again: bytes, words: str
) -> None:
    server = speaker(beginning, again)
    hop = Hop("login", "ssh", "127.0.0.1", server.port, "alice", uses_agent=False)
    before = psutil.Process().memory_info().rss
    with pytest.raises(ConnectError, match=words) as caught:
        connect([hop], ask=None, trust_file=tmp_path / "trusted", timeout=3)
    assert psutil.Process().memory_info().rss - before < 64 * MIB
    assert str(caught.value).replace("\n", "").isprintable()
    assert len(caught.value.cause) < 400


class Quiz(SignInRules):
    """Asks `prompts`, again and again."""

    prompts: list[str]
    title = instructions = ""

    def check_auth_interactive(
        self, username: str, submethods: str
    ) -> int | paramiko.server.InteractiveQuery:
        query = paramiko.server.InteractiveQuery(self.title, self.instructions)
        for prompt in self.prompts:
            query.add_prompt(prompt, False)
        return query

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        self.tries.append(repr(responses))
        return self.check_auth_interactive("", "")  # type: ignore[return-value]


class Patient:
    """Answers everything, and remembers it."""

    def __init__(self) -> None:
        self.prompts: list[tuple[str, str]] = []

    def secret(self, hop: str, prompt: str, secret: object) -> str:
        self.prompts.append((hop, prompt))
        return "answer"

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        raise AssertionError("the host is known")


@pytest.mark.parametrize(("count", "asked"), [(10_000, 0), (1, 12), (5, 12)])
def test_a_server_asks_a_few_questions_and_no_more(
    ssh_server: Callable[..., SshServer], count: int, asked: int
) -> None:
    here = ssh_server("keyboard-interactive")
    here.rules.__class__ = Quiz
    here.rules.prompts = ["Code: "] * count  # type: ignore[attr-defined]
    owner = Patient()
    with pytest.raises(ConnectError, match="questions"):
        here.visit(owner)
    assert len(owner.prompts) == asked


def test_the_passphrases_of_many_keys_are_not_questions_of_the_server() -> None:
    asker = TimedAsker(Patient(), Deadline(DEADLINE), lambda: None)
    for kind in ("passphrase", "code"):
        for _ in range(12):
            asker.secret("login", "?", ssh.Secret(kind))  # type: ignore[arg-type]
    with pytest.raises(AuthError, match="more than 12 questions"):
        asker.secret("login", "?", ssh.Secret("code"))


def test_what_a_server_asks_is_one_line_in_its_own_name(ssh_server: Callable[..., SshServer]) -> None:
    """It must not pass for a question of another hop, or for one of ours."""
    here = ssh_server("keyboard-interactive")
    here.rules.__class__ = Quiz
    here.rules.prompts = [LOOK, "x" * 5000]  # type: ignore[attr-defined]
    here.rules.title = here.rules.instructions = LOOK  # type: ignore[attr-defined]
    owner = Patient()
    with pytest.raises(AuthError, match="more than 12 questions"):
        here.visit(owner)
    for hop, prompt in owner.prompts:
        assert hop == "login"
        assert prompt.startswith("The server asks: “") and prompt.endswith("” ")
        assert prompt.isprintable() and len(prompt) < 1300


def test_a_count_beyond_all_reason_is_not_counted(ssh_server: Callable[..., SshServer]) -> None:
    """4,294,967,295 questions of no length, and as many extensions: paramiko would be busy for hours."""

    class Counting(Quiz):
        def check_auth_interactive(self, username: str, submethods: str) -> int:
            m = paramiko.Message()
            m.add_byte(bytes([60]))
            for text in ("", "", ""):
                m.add_string(text)
            m.add_int(2**32 - 1)
            here.transports[-1]._send_message(m)  # type: ignore[attr-defined]
            return paramiko.AUTH_FAILED

    here = ssh_server("keyboard-interactive")
    here.rules.__class__ = Counting
    owner = Patient()
    with pytest.raises(ConnectError, match="questions"):
        here.visit(owner)
    assert owner.prompts == []


def test_extensions_are_counted_too(ssh_server: Callable[..., SshServer]) -> None:
    here = ssh_server("password")
    connection = here.connect(Secret("sesame"))
    m = paramiko.Message()
    m.add_byte(bytes([7]))
    m.add_int(2**32 - 1)
    here.transports[-1]._send_message(m)  # type: ignore[attr-defined]
    ended(connection.alive)


class Secret(Patient):
    """Types the password."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def secret(self, hop: str, prompt: str, secret: object) -> str:
        return self.text


def ended(alive: Callable[[], bool]) -> None:
    over = threading.Event()
    for _ in range(int(DEADLINE / 0.02)):
        if not alive():
            return
        over.wait(0.02)
    raise AssertionError("the connection is still there")


def test_data_beyond_the_window_ends_the_connection(ssh_server: Callable[..., SshServer]) -> None:
    here = ssh_server("password")
    connection = here.connect(Secret("sesame"))
    (transport,) = transports(connection)
    channel = transport.open_session(WINDOW, timeout=DEADLINE)
    server = here.transports[-1]
    m = paramiko.Message()
    m.add_byte(bytes([94]))
    m.add_int(channel.get_id())
    m.add_string(bytes(32768))
    with pytest.raises((EOFError, OSError)):
        for _ in range(100 * MIB // 32768):
            server._send_message(m)  # type: ignore[attr-defined]
    ended(connection.alive)
    channel.close()


def test_bytes_that_are_no_ssh_are_an_error_of_that_hop(ssh_server: Callable[..., SshServer]) -> None:
    """After the key exchange, where paramiko raises whatever comes to its mind."""

    class Garbling(SignInRules):
        def get_allowed_auths(self, username: str) -> str:
            m = paramiko.Message()
            m.add_byte(bytes([51]))
            m.add_string(b"\xff\xfe")
            here.transports[-1]._send_message(m)  # type: ignore[attr-defined]
            return self.methods[0]

    here = ssh_server("password")
    here.rules.__class__ = Garbling
    with pytest.raises(GpuKernelError, match="violated the SSH protocol") as caught:
        here.visit(None)
    assert caught.value.hop == "login"


def test_a_refusal_of_a_hop_is_shown_on_one_line(two_hops: TwoHops) -> None:
    """The banner of a server that lets nobody in, with what moves a terminal's cursor."""
    login = two_hops.hops[0]
    (two_hops.folder / "banner").write_text(LOOK)
    two_hops.login.restart(Banner=str(two_hops.folder / "banner"), AuthorizedKeysFile="none")
    with pytest.raises(AuthError) as caught:
        connect([login], ask=None, trust_file=two_hops.trust_file)
    assert caught.value.cause.isprintable()
