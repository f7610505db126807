"""A login node and a work node: two OpenSSH servers that run as this user, and an ssh configuration for them."""

from __future__ import annotations

import getpass
import os
import random
import shutil
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from network import Network
from shared import LOGIN, WORK


class Cluster:
    """Two nodes with one home folder, in `folder`, whose path is short. Sessions get `environment`."""

    def __init__(self, folder: Path, network: Network, environment: Mapping[str, str]) -> None:
        self.ssh_config = folder / "ssh_config"
        self._folder = folder
        self._environment = dict(environment)
        self._network = network
        self._servers: list[subprocess.Popen[str]] = []
        self._shared = False
        folder.mkdir(mode=0o700, parents=True)
        self._key = _make_key(folder / "id_ed25519")
        try:
            login = self._start(LOGIN, network.listen_address())
            work = self._start(WORK, "127.0.0.1")
            self._describe(network.reach(login), work)
        except BaseException:
            self.close()
            raise

    def share_connections(self, sockets: Path) -> None:
        """Let all sessions of the system's ssh to a host use one connection."""
        self._shared = True
        text = f"Host *\n  ControlMaster auto\n  ControlPath {sockets}/%n\n  ControlPersist 10m\n"
        text += "  ServerAliveInterval 5\n  ServerAliveCountMax 3\n"
        self.ssh_config.write_text(text + self.ssh_config.read_text())

    def close(self) -> None:
        """End the servers and shared connections; other sessions end with their clients."""
        for host in (WORK, LOGIN) if self._shared else ():
            command = ["ssh", "-F", str(self.ssh_config), "-O", "exit", host]
            subprocess.run(command, stderr=subprocess.DEVNULL, check=False, timeout=10)
        for server in self._servers:
            server.terminate()
            server.wait(10)

    def processes(self) -> list[int]:
        """The pids of the servers."""
        return [server.pid for server in self._servers]

    def _start(self, name: str, address: str) -> int:
        """Start a server. Return its port."""
        for _ in range(20):
            port = random.randrange(15_000, 31_000)
            server = self._try_port(name, address, port)
            if server is not None:
                self._servers.append(server)
                return port
        raise SystemExit(f"no sshd listens on {address}: see {self._folder / name}.log")

    def _try_port(self, name: str, address: str, port: int) -> subprocess.Popen[str] | None:
        key = self._folder / f"{name}.key"
        if not key.exists():
            _make_key(key)
        options = {
            "ListenAddress": address,
            "Port": port,
            "HostKey": key,
            "AuthorizedKeysFile": f"{self._key}.pub",
            "PidFile": "none",
            "PermitRootLogin": "prohibit-password",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "StrictModes": "no",
            "UsePAM": "no",
            "UseDNS": "no",
            "SetEnv": " ".join(f'"{key}={value}"' for key, value in self._environment.items()),
        }
        config = self._folder / f"{name}.conf"
        config.write_text("".join(f"{key} {value}\n" for key, value in options.items()))
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        log = self._folder / f"{name}.log"
        command = self._network.inside([_sshd(), "-D", "-e", "-f", str(config)])
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert server.stderr
        with log.open("a") as file:
            for line in server.stderr:
                file.write(line)
                if "Server listening" in line:
                    _discard(server)
                    return server
        server.wait()
        return None

    def _describe(self, login: tuple[str, int], work_port: int) -> None:
        host, port = login
        known = self._folder / "known_hosts"
        public = {name: (self._folder / f"{name}.key.pub").read_text().strip() for name in (LOGIN, WORK)}
        known.write_text(f"[{host}]:{port} {public[LOGIN]}\n[127.0.0.1]:{work_port} {public[WORK]}\n")
        self.ssh_config.write_text(
            f"Host {LOGIN}\n  HostName {host}\n  Port {port}\n"
            f"Host {WORK}\n  HostName 127.0.0.1\n  Port {work_port}\n  ProxyJump {LOGIN}\n"
            f"Host *\n  User {getpass.getuser()}\n  IdentityFile {self._key}\n  IdentityAgent none\n"
            f"  UserKnownHostsFile {known}\n  GlobalKnownHostsFile none\n  BatchMode yes\n"
        )


def _discard(server: subprocess.Popen[str]) -> None:
    """Read what the server still logs, so that it never waits for a reader."""
    assert server.stderr
    threading.Thread(target=server.stderr.read, daemon=True).start()


def _make_key(file: Path) -> Path:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", file.name, "-f", str(file)]
    subprocess.run(command, check=True)
    return file


def _sshd() -> str:
    found = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if not found:
        raise SystemExit("no sshd on this machine (Debian: openssh-server)")
    return found
