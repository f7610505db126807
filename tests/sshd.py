"""Two real OpenSSH servers on loopback, a login node and a work node, without root: the fixture `two_hops`.

That the work node is reached through the login node is an agreement (both are this machine): `route` does so.
Each has its own home folder; commands run in the user's real shell, or in one that `shell` imitates.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import DEADLINE

from jupyter_gpu_kernel.hub.ssh.config.route import Hop, resolve


def sshd_program() -> str:
    """Its absolute path (sshd insists on one); skips the test where there is none."""
    found = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if not found:
        pytest.skip("no sshd on this machine (Debian: openssh-server)")
    return found


_claims: list[socket.socket] = []


def free_port() -> int:
    """Not one of those that systems give to whoever asks for any: it would be gone before it is used. None is given
    twice, also by other processes that run tests: each keeps UDP's port of that number, which no test uses."""
    while True:
        port = random.randrange(15_000, 31_000)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            claim = socket.socket(type=socket.SOCK_DGRAM)
            _claims.append(claim)
            claim.bind(("127.0.0.1", port))
            return port


def make_key(file: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", file.name, "-f", str(file)]
    subprocess.run(command, check=True, timeout=DEADLINE)
    return file


class Sshd:
    """One server. `environment` is what its sessions get, from the next start on, and `process_environment` what it
    has itself beside that of the tests; `restart` sets options."""

    def __init__(self, name: str, folder: Path, client_key: Path) -> None:
        self.name = name
        self.folder = folder
        self.port = free_port()
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.environment = {"HOME": str(self.home), "JUPYTER_GPU_KERNEL_SPARE_IDLE": "20"}
        self.process_environment: dict[str, str] = {}
        self.wrapper: list[str] = []  # a command that runs another one
        self.host_key = make_key(folder / "host_key")
        self.authorized = folder / "authorized_keys"
        self.authorized.write_text(Path(f"{client_key}.pub").read_text())
        self.options: dict[str, str] = {}
        self.log: list[str] = []
        self._logged = threading.Condition()
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"{getpass.getuser()}@127.0.0.1:{self.port}"

    def known_hosts_line(self) -> str:
        kind, blob, *_ = Path(f"{self.host_key}.pub").read_text().split()
        return f"[127.0.0.1]:{self.port} {kind} {blob}\n"

    def start(self) -> None:
        """Return once it listens."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        config = self.folder / "sshd_config"
        config.write_text("".join(f"{key} {value}\n" for key, value in self._config().items()))
        command = [*self.wrapper, sshd_program(), "-D", "-e", "-f", str(config)]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **self.process_environment},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        listening = threading.Event()
        threading.Thread(target=self._read_log, args=(self._process, listening), daemon=True).start()
        assert listening.wait(DEADLINE), "\n".join(self.log)
        assert self._process.poll() is None, "\n".join(self.log)

    def _config(self) -> dict[str, str]:
        setenv = " ".join(f'"{key}={value}"' for key, value in self.environment.items())
        return {
            **self.options,  # sshd takes the first value of a keyword
            **{
                key: value
                for key, value in {
                    "ListenAddress": "127.0.0.1",
                    "Port": str(self.port),
                    "HostKey": str(self.host_key),
                    "AuthorizedKeysFile": str(self.authorized),
                    "PidFile": "none",
                    "PermitRootLogin": "prohibit-password",
                    "PasswordAuthentication": "no",
                    "KbdInteractiveAuthentication": "no",
                    "StrictModes": "no",
                    "UsePAM": "no",
                    "UseDNS": "no",
                    "LogLevel": "VERBOSE",
                    "SetEnv": setenv,
                }.items()
                if key not in self.options
            },
        }

    def _read_log(self, process: subprocess.Popen[str], listening: threading.Event) -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                with self._logged:
                    self.log.append(line.rstrip())
                    self._logged.notify_all()
                if "Server listening" in line:
                    listening.set()
        listening.set()

    def wait_for_log(self, text: str, since: int = 0) -> None:
        """Until the server has logged a line with `text`, that many lines after its start."""
        with self._logged:
            found = self._logged.wait_for(lambda: any(text in line for line in self.log[since:]), DEADLINE)
            assert found, self.log

    def restart(self, **options: str) -> None:
        """With other sshd_config options, e.g. `AllowTcpForwarding="no"`."""
        self.stop()
        self.options = options
        self.start()

    def shell(self, script: str) -> None:
        """Let every session run this sh script, which finds the command in $SSH_ORIGINAL_COMMAND."""
        file = self.folder / "shell"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        self.restart(ForceCommand=shlex.quote(str(file)))

    def stop(self) -> None:
        """The server and its connections end."""
        process, self._process = self._process, None
        if process is not None:
            sessions = _sessions(process.pid)
            process.terminate()
            process.wait(DEADLINE)
            _kill(sessions)

    def drop(self) -> None:
        """Established connections end, new ones are taken."""
        assert self._process is not None
        _kill(_sessions(self._process.pid))

    def sessions(self) -> int:
        """How many processes serve connections."""
        assert self._process is not None
        return len(_sessions(self._process.pid))

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        """Nothing passes through established connections, and nobody is told."""
        assert self._process is not None
        sessions = _sessions(self._process.pid)
        _signal(sessions, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal(sessions, signal.SIGCONT)

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """New connections are taken, and not greeted."""
        assert self._process is not None
        _signal([self._process.pid], signal.SIGSTOP)
        try:
            yield
        finally:
            _signal([self._process.pid], signal.SIGCONT)


def _sessions(listener: int) -> list[int]:
    """The sshd processes that serve connections, their commands not included."""
    listing = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid=,comm="], capture_output=True, text=True, check=True, timeout=DEADLINE
    )
    processes = [line.split(None, 2) for line in listing.stdout.splitlines()]
    found = {listener}
    for _ in range(4):
        found |= {int(pid) for pid, parent, name in processes if int(parent) in found and "sshd" in name}
    return sorted(found - {listener})


def _kill(pids: list[int]) -> None:
    _signal(pids, signal.SIGKILL)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # ended with its parent
            os.kill(pid, number)


class TwoHops:
    """A login and a work node. `route` are a kernelspec's words, understood with `config=str(ssh_config)`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.key = make_key(folder / "id_ed25519")
        self.known_hosts = folder / "known_hosts"
        self.trust_file = folder / "trusted_hosts"  # ours; absent until somebody accepts a host
        self.ssh_config = folder / "ssh_config"
        self.login = Sshd("login", folder / "login", self.key)
        self.work = Sshd("work", folder / "work", self.key)
        self.route = ("login", "work")
        self.known_hosts.write_text(self.login.known_hosts_line() + self.work.known_hosts_line())
        self.ssh_config.write_text(
            f"""Host login
  Port {self.login.port}
Host work
  Port {self.work.port}
  ProxyJump login
Host *
  HostName 127.0.0.1
  User {getpass.getuser()}
  IdentityFile {self.key}
  IdentityAgent none
  UserKnownHostsFile {self.known_hosts}
  GlobalKnownHostsFile none
"""
        )

    @property
    def hops(self) -> tuple[Hop, ...]:
        return resolve(self.route, config=str(self.ssh_config))

    def start(self) -> None:
        self.login.start()
        self.work.start()

    def stop(self) -> None:
        self.login.stop()
        self.work.stop()


@pytest.fixture
def two_hops(tmp_path: Path) -> Iterator[TwoHops]:
    """A login node and a work node of this test's own, both running."""
    both = TwoHops(tmp_path / "two_hops")
    try:
        both.start()
        yield both
    finally:
        both.stop()
