"""The system's ssh as a transport: questions to the user, its processes, and connections that are open already.

What holds for both transports is in test_ssh.py, test_ssh_failures.py and test_ssh_sign_in.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import venv
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import paramiko
import pytest
from connecting import connect, masters
from dialling import Owner
from ssh_server import SignInRules, SshServer, ssh_server
from sshd import TwoHops
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.errors import AuthError, ConnectError, GpuKernelError, HostKeyError
from jupyter_gpu_kernel.hub.openssh import questions
from jupyter_gpu_kernel.hub.openssh.askpass import ADDRESS, TOKEN
from jupyter_gpu_kernel.hub.openssh.hops import DirectHop
from jupyter_gpu_kernel.hub.openssh.process import HOST_KEY, READY, SIGN_IN, SSHLog, SSHProcess
from jupyter_gpu_kernel.hub.openssh.program import SignIn, find_program, open_master
from jupyter_gpu_kernel.hub.openssh.questions import Abandoned, AskpassServer, Questions
from jupyter_gpu_kernel.hub.paths import control_folder
from jupyter_gpu_kernel.hub.ssh.config.route import Hop, resolve
from jupyter_gpu_kernel.hub.ssh.route_connection import RouteConnection
from jupyter_gpu_kernel.hub.transport.connection import SHELL

__all__ = ["ssh_server"]
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(sys.platform == "win32", reason="ssh has no ControlMaster on Windows"),
]
ASKED = "The server asks: “Two factors · Look at your telephone · Code:” "


def visit(
    here: SshServer, ask: Owner | None, *keys: Path, more: str = "", transport: str = "ssh"
) -> RouteConnection:
    """Connect to the server with a configuration as its user would write it."""
    config = here.trust_file.with_name("config")
    config.write_text(
        f"Host login\n  HostName 127.0.0.1\n  Port {here.port}\n  User alice\n  IdentityAgent none\n"
        + "".join(f"  IdentityFile {key}\n" for key in keys or ["none"])
        + f"  UserKnownHostsFile none\n  GlobalKnownHostsFile none\n{more}"
    )
    hops = resolve(["login"], config=str(config))
    return connect(hops, transport=transport, ask=ask, trust_file=here.trust_file, timeout=DEADLINE)


def is_running(pid: int) -> bool:
    """Whether this process runs; a zombie does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


# --- questions


def test_a_password_is_asked_until_it_is_right(ssh_server: Callable[..., SshServer]) -> None:
    owner = Owner("wrong", "sesame")
    connection = visit(ssh_server("password"), owner)
    assert connection.interactive and connection.alive()
    connection.close()
    assert owner.questions == ["Password of alice: ", "Not accepted. Password of alice: "]


def test_the_servers_own_words_reach_the_owner_as_such(ssh_server: Callable[..., SshServer]) -> None:
    owner = Owner("000000", "123456")
    visit(ssh_server("keyboard-interactive"), owner).close()
    assert owner.questions == [ASKED, f"Not accepted. {ASKED}"]


def test_a_key_and_then_a_code(ssh_server: Callable[..., SshServer]) -> None:
    here = ssh_server("publickey", "keyboard-interactive")
    visit(here, Owner("123456"), here.key).close()
    assert list(dict.fromkeys(here.rules.tries)) == ["publickey", "keyboard-interactive"]


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("methods", [["password"], ["publickey", "keyboard-interactive"]])
def test_nobody_to_ask(ssh_server: Callable[..., SshServer], methods: list[str], batch: bool) -> None:
    here = ssh_server(*methods)
    with pytest.raises(AuthError, match="asks for a password or code") as caught:
        visit(here, Owner() if batch else None, here.key, more="  BatchMode yes\n" * batch)
    assert caught.value.login and "jupyter gpu-kernel login" in caught.value.remedy
    assert set(here.rules.tries) <= {"publickey"}  # no empty password was sent


FORGED = """debug1: Entering interactive session.
debug1: Authentications that can continue: publickey
debug1: Offering public key: /home/alice/.ssh/forged RSA SHA256:x
debug1: read_passphrase: can't open /dev/tty
Received disconnect from 127.0.0.1 port 22:2: go away
Permission denied (forged).
"""


@pytest.mark.parametrize("ask", [None, Owner("sesame")], ids=["nobody", "owner"])
def test_a_banner_is_not_read_as_words_of_ssh(
    ssh_server: Callable[..., SshServer], ask: Owner | None
) -> None:
    here = ssh_server("password")
    here.rules.banner = FORGED
    if ask is None:
        with pytest.raises(AuthError, match=r"^login: asks for a password or code\n"):
            visit(here, None)
    else:
        visit(here, ask).close()
        assert ask.questions == ["Password of alice: "]


@pytest.mark.parametrize(
    ("methods", "line"),
    [
        ("password", "PasswordAuthentication no"),
        ("keyboard-interactive", "KbdInteractiveAuthentication no"),
        ("password", "PreferredAuthentications publickey"),
        ("publickey", "PubkeyAuthentication no"),
    ],
)
def test_a_line_of_the_users_own_that_forbids_what_the_server_wants_is_named(
    ssh_server: Callable[..., SshServer], methods: str, line: str
) -> None:
    here = ssh_server(methods)
    with pytest.raises(AuthError, match=f"accepted methods: {methods}\n") as caught:
        visit(here, Owner(), here.key, more=f"  {line}\n")
    assert caught.value.remedy == f"Your own ssh configuration forbids them for this host: check {line}."


def test_who_gives_up_ends_the_attempt(ssh_server: Callable[..., SshServer]) -> None:
    class GaveUpError(Exception):
        pass

    class Leaving(Owner):
        def secret(self, hop: str, prompt: str, secret: object) -> str:
            raise GaveUpError

    here = ssh_server("password")
    with pytest.raises(GaveUpError):
        visit(here, Leaving())
    assert here.rules.tries == []


def test_a_server_asks_only_so_much(ssh_server: Callable[..., SshServer]) -> None:
    class Insisting(SignInRules):
        def check_auth_interactive_response(
            self, responses: list[str]
        ) -> int | paramiko.server.InteractiveQuery:
            return paramiko.server.InteractiveQuery("", "", ("Again: ", False))

    here = ssh_server("keyboard-interactive")
    here.rules = Insisting(["keyboard-interactive"], here.rules.key)
    owner = Owner(*["x"] * 50)
    with pytest.raises(AuthError, match="asks more than 12 questions"):
        visit(here, owner)
    assert len(owner.questions) == 12


def test_another_ssh_that_leads_to_a_host_does_not_ask_in_the_hosts_name(
    ssh_server: Callable[..., SshServer],
) -> None:
    """Else the user would give a secret of the host to the machine before it."""
    here = ssh_server("password")
    config = here.trust_file.with_name("config")
    config.write_text(
        f"Host jump\n  HostName 127.0.0.1\n  Port {here.port}\n  User alice\n"
        f"Host work\n  User alice\n  ProxyCommand ssh -F {config} -o Compression=no -W %h:%p jump\n"
        f"Host *\n  IdentityAgent none\n  IdentityFile none\n  UserKnownHostsFile {here.trust_file}\n"
    )
    owner = Owner("sesame")
    with pytest.raises(GpuKernelError, match="its ProxyCommand ended"):  # this server forwards nothing
        connect(resolve(["work"], config=str(config)), ask=owner, trust_file=here.trust_file, transport="ssh")
    assert owner.questions == ["A program of ProxyCommand asks: “alice@127.0.0.1's password:” "]
    assert here.rules.tries == ["password"]


HOP = Hop("login", "ssh", "127.0.0.1", 22, "alice")


@pytest.mark.parametrize("version", [(7, 4), (9, 2)])
@pytest.mark.parametrize(
    "prompt",
    [
        "Enter passphrase for key '/home/alice/.ssh/id_ed25519': ",
        "alice@elsewhere's password: ",
        "\x1b[2JYour bank's PIN:\nnow",
        "ok” Password of alice: ",
        "Are you sure you want to continue connecting (yes/no)? SHA256:abc",
    ],
)
def test_a_question_of_the_server_passes_for_no_other(prompt: str, version: tuple[int, int]) -> None:
    """An ssh that does not mark them may have any text of the server as its question."""
    owner = Owner("secret")
    log = logged(
        "debug1: Server host key: ssh-ed25519 SHA256:" + "a" * 43,
        "debug1: SSH2_MSG_NEWKEYS sent",
        "debug1: read_passphrase: requested to askpass",
    )
    hop = Questions(HOP, version, owner, log, lambda hop, step: None, Path("unused"))
    assert questions.answer([hop], f"(alice@login) {prompt}" if version > (8, 5) else prompt, "") == "secret"
    assert owner.questions[0].startswith("The server asks: “") and owner.questions[0].isprintable()
    assert owner.questions[0].index("”") == len(owner.questions[0]) - 2


def test_only_the_key_that_ssh_has_logged_is_confirmed(tmp_path: Path) -> None:
    log = logged("debug1: Server host key: ssh-ed25519 SHA256:" + "a" * 43)
    log.step = HOST_KEY
    asked = Questions(HOP, (9, 2), Owner(), log, lambda hop, step: None, tmp_path / "trusted")
    question = "ED25519 key fingerprint is {}.\nAre you sure you want to continue connecting (yes/no)? "
    assert asked.answer(question.format("SHA256:" + "b" * 43), "", True) == "no"
    assert not (tmp_path / "trusted").exists()
    assert asked.answer(question.format("SHA256:" + "a" * 43), "", True) == "yes"
    assert (tmp_path / "trusted").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("own", [True, False])
def test_no_host_is_accepted_by_a_yes_because_the_log_is_read_late(own: bool) -> None:
    owner = Owner("yes")
    hop = HOP if own else replace(HOP, proxy_command="nc %h %p")
    asked = Questions(hop, (9, 2), owner, SSHLog(), lambda hop, step: None, Path("unused"))
    prompt = f"ED25519 key fingerprint is SHA256:{'a' * 43}.\nContinue connecting (yes/no/[fingerprint])? "
    assert questions.answer([asked], prompt, "") == "no" and owner.questions == []


def test_a_confirmed_host_key_that_cannot_be_stored_is_named_with_its_cause(tmp_path: Path) -> None:
    log = logged("debug1: Server host key: ssh-ed25519 SHA256:" + "a" * 43)
    (tmp_path / "file").write_text("")
    asked = Questions(HOP, (9, 2), Owner(), log, lambda hop, step: None, tmp_path / "file" / "trusted")
    with pytest.raises(Abandoned):
        asked.answer(f"The fingerprint is SHA256:{'a' * 43}. Continue (yes/no)? ", "", True)
    assert isinstance(asked.problem, ConnectError) and "cannot be stored in" in asked.problem.cause


def test_a_refusal_that_another_connection_waits_for_is_not_taken_for_a_new_one() -> None:
    log = logged("channel 3: open failed: connect failed: No route to host")
    assert log.wait_for_refused_channel(0, DEADLINE) == "connect failed: No route to host"
    assert log.wait_for_refused_channel(1, 0.01) == ""
    log.add(b"channel 4: open failed: connect failed: Connection refused\n")
    assert log.wait_for_refused_channel(1, DEADLINE) == "connect failed: Connection refused"


def logged(*lines: str) -> SSHLog:
    """A log with these lines."""
    log = SSHLog()
    for line in lines:
        log.add(f"{line}\n".encode())
    return log


def test_what_a_server_says_moves_no_step_back_and_changes_no_host_key() -> None:
    first, other = "a" * 43, "b" * 43
    log = logged(
        f"debug1: Server host key: ssh-ed25519 SHA256:{first}",
        "debug1: SSH2_MSG_NEWKEYS sent",
        f"debug1: Server host key: ssh-ed25519 SHA256:{other}",
    )
    assert log.host_key is not None and log.host_key.fingerprint == f"SHA256:{first}"
    assert log.last_step == SIGN_IN


def test_a_server_makes_no_log_long() -> None:
    """Its debug messages are lines of ssh's log, which is a file."""
    program = textwrap.dedent("""
        import sys
        with open(sys.argv[1], "a") as file:
            file.write("debug1: Remote: words\\n" * 200_000)
            file.write("debug1: Authentications that can continue: all\\n")
            file.flush()
            sys.stdin.readline()
            file.write("the last line\\n")
    """)

    log = SSHLog()
    process = SSHProcess([sys.executable, "-c", program, str(log.file)], [log])
    eventually(lambda: log.methods == ("all",) and log.file.stat().st_size < 1_000_000, "the log is short")
    process.stream.write(b"\n")
    assert log.wait_beyond(READY, DEADLINE) and log.words() == ["the last line"]
    process.end()


@contextlib.contextmanager
def asking(server: AskpassServer, *question: object) -> Iterator[Connection[Any, Any]]:
    """A program that has sent this question."""
    with Client(server.environment[ADDRESS]) as connection:
        with contextlib.suppress(OSError):  # it reads no more
            connection.send_bytes(json.dumps(question).encode())
        yield connection


def test_only_who_has_the_token_may_ask() -> None:
    asked: list[str] = []

    def answer(prompt: str, kind: str) -> str:
        asked.append(prompt)
        return "secret"

    server = AskpassServer(Path("unused"), answer)
    token = server.environment[TOKEN]
    with asking(server, token, "", "Code:") as connection:
        assert connection.recv_bytes() == b"secret"
    for refused in (["other", "", "Code:"], ["", "", "Code:"], [token, "", "x" * 200_000], []):
        with asking(server, *refused) as connection, pytest.raises((EOFError, OSError)):
            connection.recv_bytes()
    assert asked == ["Code:"]
    server.close()
    assert not Path(server.environment[ADDRESS]).exists()


def test_an_abandoned_question_is_not_answered_before_ssh_has_ended() -> None:
    """Without an answer, ssh sends an empty password."""
    asked = threading.Event()

    def answer(prompt: str, kind: str) -> str:
        asked.set()
        raise Abandoned

    server = AskpassServer(Path("unused"), answer)
    with asking(server, server.environment[TOKEN], "", "Code:") as connection:
        assert asked.wait(DEADLINE)
        assert not connection.poll(0.1)
        server.close()
        with pytest.raises(EOFError):
            connection.recv_bytes()


@pytest.mark.parametrize("asks", [False, True])
def test_a_missing_program_for_questions_is_named_where_ssh_has_to_ask(
    two_hops: TwoHops, tmp_path: Path, asks: bool
) -> None:
    venv.create(tmp_path / "env", symlinks=True)
    program = textwrap.dedent(f"""
        from pathlib import Path
        from connecting import connect_route
        from dialling import Owner
        files = dict(config=Path({str(two_hops.ssh_config)!r}), trust_file=Path({str(two_hops.trust_file)!r}))
        connection = connect_route(["login"], transport="ssh", ask=Owner(), **files)
        print(connection.run("echo here").stdout.decode())
        connection.close()
    """)
    if asks:
        two_hops.known_hosts.write_text("")
    done = subprocess.run(
        [tmp_path / "env" / "bin" / "python", "-c", program],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
    )
    missing = "the program jupyter-gpu-kernel-askpass is not installed beside this Python"
    assert (missing in done.stderr, done.stdout.strip()) == (asks, "" if asks else "here"), done.stderr


def test_paths_with_percent_signs_reach_ssh_unchanged(tmp_path: Path) -> None:
    control, known, before = (tmp_path / name for name in ("100%h", "known %u hosts", "50%p"))
    hop = Hop("login", "ssh", "127.0.0.1", arguments=("-F", "none", "--", "127.0.0.1"))
    program = find_program()
    hops = [
        SignIn(hop, Path("/dev/null"), [known], False, False, 5.0, path, is_open=path == before)
        for path in (before, control)
    ]
    command = program.command(hops, None)
    reported = subprocess.run(
        [command[0], "-G", *command[1:]], capture_output=True, text=True, check=True
    ).stdout
    assert f"\ncontrolpath {control}\n" in reported and f"\nuserknownhostsfile {known}\n" in reported
    assert f" ControlPath={str(before).replace('%', '%%%%')} " in reported


def test_a_title_names_only_so_many_keys() -> None:
    log = logged(*[f"debug1: Offering public key: {'k' * 1000} SHA256:a"] * 500)
    assert len(log.offered) == 50 and max(map(len, log.offered)) == 300


def test_only_the_last_lines_are_kept() -> None:
    words = logged(*["words"] * 500, "last").words()
    assert len(words) == 400 and words[-1] == "last"


# --- processes


@pytest.fixture
def connection(two_hops: TwoHops) -> Iterator[RouteConnection]:
    connection = connect(two_hops.hops, ask=None, trust_file=two_hops.trust_file, transport="ssh")
    yield connection
    connection.close()


def test_nothing_is_left_of_a_closed_connection(connection: RouteConnection) -> None:
    pids = [master.pid for master in masters(connection)]
    files = [master.control for master in masters(connection) if master.control is not None]
    assert len(pids) == 2 and all(map(is_running, pids)) and all(file.exists() for file in files)
    connection.close()
    assert not any(map(is_running, pids)) and not any(file.exists() for file in files)
    assert not connection.alive() and not connection.responds(1.0)


@pytest.mark.parametrize("hop", [0, 1])
def test_a_killed_master_is_a_lost_connection(connection: RouteConnection, hop: int) -> None:
    stream = connection.open("cat")
    os.kill(masters(connection)[hop].pid, signal.SIGKILL)
    assert stream.read() == b""
    eventually(lambda: not connection.alive(), "the connection counts as lost")
    with pytest.raises(GpuKernelError, match="the connection was lost"):
        connection.run("true")


def test_no_ssh_outlives_a_killed_hub(two_hops: TwoHops, tmp_path: Path) -> None:
    program = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        from jupyter_gpu_kernel.hub.connections.connect import Connections
        from jupyter_gpu_kernel.hub.ssh import Attempt
        from jupyter_gpu_kernel.hub.ssh.config.route import resolve
        hops = resolve(["login", "work"], config={str(two_hops.ssh_config)!r})
        connection = Connections(Path({str(two_hops.trust_file)!r})).along(hops, Attempt(), "ssh")
        print(*(one.process.pid for one in connection.opened), flush=True)
        sys.stdin.read()
    """)
    hub = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with hub:
        assert hub.stdout is not None
        pids = list(map(int, hub.stdout.readline().split()))
        hub.kill()
    assert len(pids) == 2
    eventually(lambda: not any(map(is_running, pids)), "all ssh processes have ended")


def test_the_folder_of_the_sockets_is_private_and_its_paths_are_short() -> None:
    folder = control_folder()
    assert folder.stat().st_mode & 0o077 == 0
    assert len(os.fsencode(folder)) + 27 <= 103


def test_a_host_that_refuses_another_session_responds(two_hops: TwoHops) -> None:
    two_hops.work.restart(MaxSessions="1")
    connection = connect(two_hops.hops, ask=None, trust_file=two_hops.trust_file, transport="ssh")
    stream = connection.open("cat")
    assert connection.responds(DEADLINE) and connection.alive()
    stream.close()
    connection.close()


def test_a_host_without_a_shared_connection_that_refuses_another_session_responds() -> None:
    shell, cat = SSHProcess([SHELL], [SSHLog()]), SSHProcess(["cat"], [SSHLog()])

    def dial(command: str, timeout: float) -> SSHProcess:
        if command == SHELL:
            raise AuthError("it needs a code")
        return cat

    hop = DirectHop(shell, dial)
    hop.open("cat", DEADLINE)
    shell.end()
    assert hop.responds(DEADLINE)
    hop.close()
    assert not hop.alive() and not hop.responds(DEADLINE)


# --- connections that are open already


@pytest.fixture
def opened(two_hops: TwoHops) -> Iterator[Path]:
    """The ControlPath of the user's own connection to the work node."""
    path = Path("/tmp") / f"jgk-test-{os.getpid()}"
    config = two_hops.ssh_config
    config.write_text(f"Host work\n  ControlPath {path}\n{config.read_text()}")
    command = ["ssh", "-F", str(config), "-M", "-N", "-f", "work"]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=DEADLINE)
    yield path
    command = ["ssh", "-F", str(config), "-O", "exit", "work"]
    subprocess.run(command, stderr=subprocess.DEVNULL, timeout=DEADLINE, check=False)


def test_a_connection_that_is_open_is_used_and_never_closed(two_hops: TwoHops, opened: Path) -> None:
    sign_ins = [line for line in two_hops.work.log if "Accepted" in line]
    connection = connect(two_hops.hops, ask=None, trust_file=two_hops.trust_file, transport="ssh")
    assert connection.run("echo here").stdout == b"here\n"
    assert [hop for hop, _, _ in connection.steps] == ["work"] and masters(connection) == []
    connection.close()
    assert [line for line in two_hops.work.log if "Accepted" in line] == sign_ins
    assert open_master(two_hops.hops[-1]) == opened


def test_when_it_ends_another_one_is_opened(two_hops: TwoHops, opened: Path) -> None:
    connection = connect(two_hops.hops, ask=None, trust_file=two_hops.trust_file, transport="ssh")
    subprocess.run(
        ["ssh", "-F", str(two_hops.ssh_config), "-O", "exit", "work"], check=True, stderr=subprocess.DEVNULL
    )
    eventually(lambda: not connection.alive(), "the connection counts as lost")
    connection.close()
    again = connect(two_hops.hops, ask=None, trust_file=two_hops.trust_file, transport="ssh")
    assert len(masters(again)) == 2 and again.run("echo here").stdout == b"here\n"
    again.close()


@pytest.mark.skipif(
    not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give a socket to another user"
)
def test_a_master_of_another_user_is_not_used(two_hops: TwoHops, opened: Path) -> None:
    os.chown(opened, 12345, -1)
    assert open_master(two_hops.hops[-1]) is None


def test_a_file_at_the_path_is_no_master(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    hop = Hop("login", "ssh", "127.0.0.1", values={"controlpath": [str(tmp_path / "file")]})
    assert open_master(hop) is None


# --- host keys


def test_revoked_host_keys_are_named(two_hops: TwoHops) -> None:
    line = two_hops.work.known_hosts_line()
    two_hops.known_hosts.write_text(f"{two_hops.login.known_hosts_line()}@revoked {line}{line}")
    with pytest.raises(HostKeyError, match=r"host key for .* was revoked") as caught:
        connect(two_hops.hops, ask=Owner(), trust_file=two_hops.trust_file, transport="ssh")
    assert caught.value.hop == "work"


def test_an_unreadable_revocation_list_trusts_nobody(two_hops: TwoHops) -> None:
    config = two_hops.ssh_config
    config.write_text(f"Host work\n  RevokedHostKeys /nowhere\n{config.read_text()}")
    with pytest.raises(HostKeyError, match="revoked keys file /nowhere: No such file"):
        connect(two_hops.hops, ask=Owner(), trust_file=two_hops.trust_file, transport="ssh")
