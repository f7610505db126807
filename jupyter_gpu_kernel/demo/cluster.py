"""The practice cluster: a login node on a loopback port, and a work node behind it that has no port.

All its files are in one folder: keys, known hosts, an ssh configuration with `demo-login` and `gpu-demo`, the nodes'
home folders and the agent's base folder. The link can be cut and restored. Both nodes are this machine, and their
processes belong to the current user. The cluster needs POSIX; the module can be imported everywhere. It does not know
kernels.
"""

from __future__ import annotations

import contextlib
import getpass
import io
import os
import secrets
import signal
import site
import socket
import threading
import time
from pathlib import Path

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..wire.files import create_file
from . import gpus
from .server import Node

LOGIN, WORK = "demo-login", "gpu-demo"
ROUTE = (LOGIN, WORK)
MARK = (
    "JUPYTER_GPU_KERNEL_DEMO"  # the variable with the cluster's folder, in the environment of its processes
)
BASE = "JUPYTER_GPU_KERNEL_BASE"  # the variable with the folder in which the agent makes its own

_CONFIG = """Host {login}
  HostName 127.0.0.1
  Port {port}
Host {work}
  ProxyJump {login}
Host {login} {work}
  User {user}
  IdentityFile "{key}"
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile "{known_hosts}"
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
"""


class Cluster:
    """A cluster in `folder`, which is empty, has mode 0700 and a short path. GPUs are simulated unless `real_gpus`."""

    def __init__(self, folder: Path, *, real_gpus: bool = False) -> None:
        self.folder = folder
        self.ssh_config = folder / "ssh_config"
        self.simulated = not real_gpus
        for name in (LOGIN, WORK, "base", "tmp", "bin"):
            (folder / name).mkdir(mode=0o700)
        if self.simulated:
            gpus.install(folder / "bin", secrets.token_hex(4))
        user, client, work, login = getpass.getuser(), *(_new_key() for _ in range(3))
        create_file(folder / "id_ed25519", client.encode())
        self._work = Node(WORK, _key(work), user, _key(client), self._environment(WORK))
        self._login = Node(
            LOGIN, _key(login), user, _key(client), self._environment(LOGIN), {(WORK, 22): self._work}
        )
        self._login_port = _LoginPort(self._login)
        self._describe(user)

    @property
    def port(self) -> int:
        """The login node's port on 127.0.0.1."""
        return self._login_port.port

    def start(self) -> None:
        """Accept connections."""
        self._login_port.open()

    def cut(self) -> None:
        """Cut the network: close all connections, and refuse new ones, until `start`."""
        self._login_port.close()

    def stop(self) -> None:
        """Cut the network, and kill all processes that are left on the nodes."""
        self.cut()
        end_processes(self.folder)

    def _environment(self, name: str) -> dict[str, str]:
        """The environment of a login, without variables of this process except the path to Python."""
        user, home = getpass.getuser(), str(self.folder / name)
        environment = {
            "HOME": home,
            "USER": user,
            "LOGNAME": user,
            "SHELL": "/bin/sh",
            "HOSTNAME": name,
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "TMPDIR": str(self.folder / "tmp"),
            "PATH": os.pathsep.join([str(self.folder / "bin"), os.environ.get("PATH", os.defpath)]),
            BASE: str(self.folder / "base"),
            MARK: str(self.folder),
            "JUPYTER_GPU_KERNEL_SPARE": "off",  # a spare interpreter would outlive the demo's kernels
        }
        if site.ENABLE_USER_SITE:  # packages of `pip install --user` are found through the real home
            environment["PYTHONUSERBASE"] = site.getuserbase()
        return environment

    def _describe(self, user: str) -> None:
        known_hosts = self.folder / "known_hosts"
        lines = (
            f"[127.0.0.1]:{self._login_port.port} {_public(self._login)}\n",
            f"{WORK} {_public(self._work)}\n",
        )
        known_hosts.write_text("".join(lines))
        key = self.folder / "id_ed25519"
        self.ssh_config.write_text(
            _CONFIG.format(
                login=LOGIN,
                work=WORK,
                port=self._login_port.port,
                user=user,
                key=key,
                known_hosts=known_hosts,
            )
        )


class _LoginPort:
    """The login node's port on loopback, and the connections through it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []
        self._listener: socket.socket | None = _listener(0)
        self.port: int = self._listener.getsockname()[1]

    def open(self) -> None:
        """Listen, on the same port each time."""
        listener = self._listener or _listener(self.port)
        listener.listen(16)
        listener.settimeout(0.5)  # closing does not wake `accept` on every system
        self._listener = listener
        threading.Thread(
            target=self._accept, args=(listener,), name="practice login node", daemon=True
        ).start()

    def close(self) -> None:
        """Close all connections, and refuse new ones."""
        with self._lock:
            listener, self._listener = self._listener, None
            broken, self._connections = self._connections, []
        for sock in filter(None, (listener, *broken)):
            with contextlib.suppress(OSError):  # not connected any more
                sock.shutdown(socket.SHUT_RDWR)
        if listener is not None:
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while self._listener is listener:
            try:
                sock, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError:  # closed
                return
            sock.setblocking(True)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._connections = [one for one in self._connections if one.fileno() >= 0]
                if self._listener is not listener:  # cut in this moment
                    sock.close()
                    return
                self._connections.append(sock)
            self._node.serve(sock)


def _listener(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        sock.close()
        raise
    return sock


def _new_key() -> str:
    """A new private key in OpenSSH's format."""
    key = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    return key.decode()


def _key(text: str) -> paramiko.PKey:
    return paramiko.Ed25519Key(file_obj=io.StringIO(text))


def _public(node: Node) -> str:
    return f"{node.host_key.get_name()} {node.host_key.get_base64()}"


def end_processes(folder: Path, timeout: float = 10.0) -> list[int]:
    """Kill all processes of the cluster in `folder`. Return their pids. Without /proc, none are found."""
    killed: list[int] = []
    deadline = time.monotonic() + timeout
    while (left := processes(folder)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):  # ended by itself
                os.kill(pid, signal.SIGKILL)
        killed += [pid for pid in left if pid not in killed]
        time.sleep(0.02)  # a killed process may just have started another one
    return killed


def processes(folder: Path) -> list[int]:
    """The pids of the running processes of the cluster in `folder`, found by their environment."""
    mark = f"{MARK}={folder}".encode()
    found = []  # without zombies, which have no environment
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            marked = mark in entry.read_bytes().split(b"\0")
        except OSError:  # another user's, or gone
            continue
        if marked and int(entry.parent.name) != os.getpid():
            found.append(int(entry.parent.name))
    return found
