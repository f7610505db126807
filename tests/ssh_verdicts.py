"""How a server was reached with a configuration: by the real ssh, and by us. `Lab` has a login node and its files.

The server's log says who came, by which method, and with which algorithms.
"""

from __future__ import annotations

import functools
import hashlib
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from certificates import revocation_list
from connecting import connect
from real_ssh import run_ssh
from sshd import Sshd, TwoHops, make_key
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import GpuKernelError
from jupyter_gpu_kernel.hub.ssh.config import reasons
from jupyter_gpu_kernel.hub.ssh.config.route import Hop, parse_route


class Seen(NamedTuple):
    """A server's view of one client."""

    user: str
    method: str
    key: str
    exchange: str
    host_key: str
    cipher: str
    mac: str


class Lab:
    """A login node with keys of two types, and the files that configurations name."""

    def __init__(self, folder: Path) -> None:
        self.two = TwoHops(folder / "two_hops")
        self.login = self.two.login
        second = make_key(folder / "ecdsa_host_key", "ecdsa")
        self.login.options = {"HostKey": f"{self.login.host_key}\nHostKey {second}", "LogLevel": "DEBUG"}
        self.files = folder / "files"
        self.files.mkdir()
        line = self.login.known_hosts_line()
        key = " ".join(line.split()[1:])
        stranger = make_key(self.files / "stranger")
        public = Path(f"{stranger}.pub").read_text()
        revocation_list(self.files / "krl", stranger)
        revocation_list(self.files / "krl_of_host", self.login.host_key)
        for name, text in {
            "both": line + line.replace(key, " ".join(Path(f"{second}.pub").read_text().split()[:2])),
            "alias": f"somebody {key}\n",
            "empty": "",
            "included": "PubkeyAuthentication no\n",
            "known": line,
            "marked": f"{line}@revoked * {key}\n",
            "other": f"[127.0.0.1]:{self.login.port} {' '.join(public.split()[:2])}\n",
            "revoked": f"# none of these\n{public}{key}\n",
        }.items():
            (self.files / name).write_text(text)

    def config(self, lines: str, host: str = "Host login\n  ") -> Path:
        """The two hops' configuration with these lines first."""
        file = self.files / f"config-{hashlib.sha256(lines.encode()).hexdigest()[:12]}"
        text = self.two.ssh_config.read_text()
        if "IdentityFile" in lines:  # all values of it count, not only the first
            text = "".join(line for line in text.splitlines(True) if "IdentityFile" not in line)
        lines = lines.format(folder=self.files, nc=shutil.which("nc") or "nc")
        file.write_text(f"{host}{lines}\n{text}  UpdateHostKeys no\n")  # else ssh would learn the other key
        return file

    def ssh(self, config: Path) -> Seen | None:
        """What the server saw of ssh; None if that did not connect."""
        since = len(self.login.log)
        return seen(self.login, since) if run_ssh(config, "login").connected else None

    def we(self, config: Path) -> Seen | GpuKernelError:
        """What the server saw of us, or our error."""
        return self.connect(self.hops(config))

    def hops(self, config: Path) -> tuple[Hop, ...] | GpuKernelError:
        """The route as we read it from the configuration."""
        try:
            return parse_route("login", config=str(config))
        except GpuKernelError as error:
            return error

    def connect(self, hops: tuple[Hop, ...] | GpuKernelError) -> Seen | GpuKernelError:
        """What the server saw of us on this route: of paramiko, or of ssh where a certificate needs that."""
        if isinstance(hops, GpuKernelError):
            return hops
        since = len(self.login.log)
        certified = any("certificate" in reason for reason in reasons.reasons(hops[-1]))
        try:
            transport = "ssh" if certified else "paramiko"
            connect(hops, trust_file=self.two.trust_file, transport=transport).close()
        except GpuKernelError as error:
            return error
        return seen(self.login, since)


def seen(server: Sshd, since: int) -> Seen:
    """What the server has logged about the one client after so many lines."""
    server.wait_for_log("Accepted publickey for", since)
    log = "\n".join(server.log[since:])

    def find(pattern: str) -> Sequence[str]:
        found = re.search(pattern, log)
        assert found is not None, log
        return found.groups()

    method, user, key = find(r"Accepted (\S+) for (\S+) from .* (SHA256:\S+)")
    (exchange,) = find(r"kex: algorithm: (\S+)")
    (host_key,) = find(r"kex: host key algorithm: (\S+)")
    cipher, mac = find(r"kex: client->server cipher: (\S+) MAC: (\S+)")
    return Seen(user, method, key, exchange, host_key, cipher, mac)


@functools.cache
def permitted(config: Path) -> dict[str, list[str]]:
    """The algorithms that ssh says it permits."""
    command = ["ssh", "-G", "-F", str(config), "login"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE)
    return {
        key: value.split(",") for key, _, value in (line.partition(" ") for line in done.stdout.splitlines())
    }


def assert_same(config: Path, theirs: Seen, ours: Seen | GpuKernelError) -> None:
    """Both connected as the same user with the same keys, and with permitted algorithms."""
    assert isinstance(ours, Seen), ours
    assert ours[:3] == theirs[:3] and ours.host_key == theirs.host_key
    lists = permitted(config)
    for directive, mine in (
        ("kexalgorithms", ours.exchange),
        ("ciphers", ours.cipher),
        ("macs", ours.mac),
    ):
        assert mine in (*lists[directive], "<implicit>")
