"""What the ssh configuration says about passwords and codes, for the real ssh (with SSH_ASKPASS) and for us.

OpenSSH's server needs root to check passwords, so the server is paramiko's. It tells which methods were tried.
"""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import paramiko
import pytest
from connecting import connect_route
from dialling import Owner
from real_ssh import Run, run_ssh
from sshd import make_key
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import AuthError

pytestmark = pytest.mark.full

PASSWORD, CODE, KEY = "password", "keyboard-interactive", "publickey"
WRONG = "wrong"


class Row(NamedTuple):
    """`steps`: the methods that the server takes, one of each step. `typed`: the user's answers, as far as asked."""

    steps: list[list[str]]
    lines: str
    typed: list[str]
    connects: bool


ROWS = [
    Row([[PASSWORD]], "", ["sesame"], True),
    Row([[PASSWORD]], "", [WRONG, WRONG, "sesame"], True),
    Row([[PASSWORD]], "", [WRONG, WRONG, WRONG, "sesame"], False),
    Row([[PASSWORD]], "NumberOfPasswordPrompts 1", [WRONG, "sesame"], False),
    Row([[PASSWORD]], "NumberOfPasswordPrompts 5", [WRONG] * 4 + ["sesame"], True),
    Row([[PASSWORD]], "NumberOfPasswordPrompts 0", ["sesame"], False),
    Row([[PASSWORD]], "PasswordAuthentication no", ["sesame"], False),
    Row([[PASSWORD]], "PreferredAuthentications publickey,keyboard-interactive", ["sesame"], False),
    Row([[PASSWORD]], "BatchMode yes", ["sesame"], False),
    Row([[CODE]], "", ["123456"], True),
    Row([[CODE]], "KbdInteractiveAuthentication no", ["123456"], False),
    Row([[CODE]], "ChallengeResponseAuthentication no", ["123456"], False),
    Row([[CODE]], "KbdInteractiveDevices pam,skey", ["123456"], True),
    Row([[CODE]], "NumberOfPasswordPrompts 2", [WRONG, WRONG, "123456"], False),
    Row([[CODE, PASSWORD]], "", ["123456"], True),
    Row([[CODE, PASSWORD]], "PreferredAuthentications password", ["sesame"], True),
    Row([[CODE, PASSWORD]], "PreferredAuthentications password,keyboard-interactive", ["sesame"], True),
    Row([[CODE, PASSWORD]], "NumberOfPasswordPrompts 1", [WRONG, "sesame"], True),
    Row([[CODE, PASSWORD]], "KbdInteractiveAuthentication no", ["sesame"], True),
    Row([[KEY, PASSWORD]], "", [], True),
    Row([[KEY, PASSWORD]], "PubkeyAuthentication no", ["sesame"], True),
    Row([[KEY, PASSWORD]], "PreferredAuthentications password,publickey", ["sesame"], True),
    Row([[KEY, PASSWORD]], "PreferredAuthentications password,publickey", [WRONG] * 3, True),
    Row([[KEY, PASSWORD]], "PreferredAuthentications password,publickey\n  BatchMode yes", [], True),
    Row([[KEY, PASSWORD]], "IdentityFile none", ["sesame"], True),
    Row([[PASSWORD], [KEY]], "", ["sesame"], True),
    Row([[PASSWORD], [KEY]], "PubkeyAuthentication no", ["sesame"], False),
    Row([[PASSWORD], [CODE]], "NumberOfPasswordPrompts 1", ["sesame", "123456"], True),
    Row([[PASSWORD], [CODE]], "KbdInteractiveAuthentication no", ["sesame", "123456"], False),
]


class StepRules(paramiko.ServerInterface):
    """Lets in who is right once at each step. `tries`: the methods, and the devices that a client has named."""

    def __init__(self, steps: Sequence[Sequence[str]], key: paramiko.PKey) -> None:
        self._steps, self._key = list(steps), key
        self.tries: list[str] = []

    def get_allowed_auths(self, username: str) -> str:
        return ",".join(self._steps[0])

    def _judge(self, method: str, right: bool) -> int:
        self.tries.append(method)
        if not right or method not in self._steps[0]:
            return paramiko.AUTH_FAILED
        if len(self._steps) == 1:
            return paramiko.AUTH_SUCCESSFUL
        del self._steps[0]
        return paramiko.AUTH_PARTIALLY_SUCCESSFUL

    def check_auth_password(self, username: str, password: str) -> int:
        return self._judge(PASSWORD, password == "sesame")

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        if KEY not in self._steps[0]:  # we may offer the first one before we know that
            return paramiko.AUTH_FAILED
        return self._judge(KEY, key == self._key)

    def check_auth_interactive(
        self, username: str, submethods: str
    ) -> int | paramiko.server.InteractiveQuery:
        if CODE not in self._steps[0]:
            return paramiko.AUTH_FAILED
        self.tries.append(f"devices {submethods}")
        return paramiko.server.InteractiveQuery("", "", ("Code: ", False))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        return self._judge(CODE, responses == ["123456"])

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._end, args=(channel,), daemon=True).start()
        return True

    def _end(self, channel: paramiko.Channel) -> None:
        channel.send_exit_status(0)
        channel.close()


class Server:
    """Serves one client after the other; `rules` is the next one's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = make_key(folder / "key")
        self._own_key = paramiko.PKey.from_path(make_key(folder / "host_key"))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._transports: list[paramiko.Transport] = []
        self.port = self._listener.getsockname()[1]
        self.rules = StepRules([], self._own_key)
        (folder / "known_hosts").write_text(
            f"[127.0.0.1]:{self.port} {self._own_key.get_name()} {self._own_key.get_base64()}\n"
        )
        threading.Thread(target=self._serve, daemon=True).start()

    def expect(self, steps: Sequence[Sequence[str]]) -> StepRules:
        """The next client's rules."""
        self.rules = StepRules(steps, paramiko.PKey.from_path(self.key))
        return self.rules

    def config(self, lines: str) -> Path:
        """A configuration with these lines first."""
        key = "" if "IdentityFile" in lines else f"  IdentityFile {self.key}\n"
        file = self.folder / "config"
        file.write_text(
            f"Host login\n  {lines}\n  HostName 127.0.0.1\n  Port {self.port}\n  User alice\n{key}"
            f"  IdentityAgent none\n  UserKnownHostsFile {self.folder}/known_hosts\n  GlobalKnownHostsFile none\n"
        )
        return file

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            transport = paramiko.Transport(client)
            self._transports.append(transport)
            transport.add_server_key(self._own_key)
            transport.start_server(threading.Event(), self.rules)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for transport in self._transports:
            transport.close()
            transport.join(DEADLINE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("typed"))
    yield server
    server.close()


class Theirs:
    """What the real ssh did, once for each row."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._runs: dict[int, tuple[Run, list[str]]] = {}

    def of(self, row: Row) -> tuple[Path, Run, list[str]]:
        """The row's configuration, how ssh ended, and what it tried."""
        config, key = self._server.config(row.lines), ROWS.index(row)
        if key not in self._runs:
            rules = self._server.expect(row.steps)
            run = run_ssh(config, "login", answers=row.typed, folder=self._server.folder)
            self._runs[key] = run, once(rules.tries)
        return config, *self._runs[key]


@pytest.fixture(scope="module")
def theirs(server: Server) -> Theirs:
    return Theirs(server)


def once(tries: Sequence[str]) -> list[str]:
    """The tries; a key counts once, as ssh first asks whether it would be taken."""
    return [one for one, same in itertools.groupby(tries) for _ in ([one] if one == KEY else same)]


@pytest.mark.parametrize("transport", ["auto", "ssh"])
@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row.steps} {row.lines} {row.typed}".replace("\n", " ")
)
def test_both_are_asked_and_let_in_alike(
    server: Server, theirs: Theirs, row: Row, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, run, tries = theirs.of(row)
    assert run.connected is row.connects, run.stderr
    rules, owner = server.expect(row.steps), Owner(*row.typed)
    try:
        connect_route(
            ["login"],
            config=config,
            transport=transport,
            ask=owner,
            trust_file=server.folder / "trusted_hosts",
        ).close()
        connected = True
    except AuthError:
        connected = False
    assert connected is row.connects
    assert once(rules.tries) == tries
    assert len(owner.questions) == len(run.asked)
