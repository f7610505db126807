"""The practice cluster: a login node on a loopback port, and a work node behind it that has no port.

All its files are in one folder: keys, known hosts, an ssh configuration with `demo-login` and `gpu-demo`, the nodes'
home folders and the agent's base folder. The link can be cut and restored. Both nodes are this machine, and their
processes belong to the current user. The cluster needs Linux; the module can be imported everywhere. It does not know
kernels.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import signal
import site
import socket
import threading
import time
from pathlib import Path

import paramiko

from . import gpus
from .server import PracticeNode

LOGIN, WORK = "demo-login", "gpu-demo"
ROUTE = (LOGIN, WORK)
# The variable with the cluster's folder, in the environment of its processes.
MARK = "JUPYTER_GPU_KERNEL_DEMO"

_CONFIG = f"""Host {LOGIN}
  HostName 127.0.0.1
  Port {{port}}
Host {WORK}
  ProxyJump {LOGIN}
Host {LOGIN} {WORK}
  User {{user}}
  IdentityFile "{{folder}}/id_ecdsa"
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile "{{folder}}/known_hosts"
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
"""


class Cluster:
    """A running cluster in `folder`, which is empty, has mode 0700 and a short path. GPUs are simulated unless
    `real_gpus`."""

    def __init__(self, folder: Path, *, real_gpus: bool = False) -> None:
        self.folder = folder
        self.ssh_config = folder / "ssh_config"
        self.simulated = not real_gpus
        for name in (LOGIN, WORK, "base", "tmp", "bin"):
            (folder / name).mkdir(mode=0o700)
        if self.simulated:
            gpus.install(folder / "bin", secrets.token_hex(4))
        user, (client, work, login) = getpass.getuser(), (paramiko.ECDSAKey.generate() for _ in range(3))
        client.write_private_key_file(str(folder / "id_ecdsa"))
        behind = PracticeNode(WORK, work, user, client, self._environment(WORK))
        self._login = PracticeNode(LOGIN, login, user, client, self._environment(LOGIN), {(WORK, 22): behind})
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        """The login node's port on 127.0.0.1."""
        self._accept_in_thread()
        known_hosts = {f"[127.0.0.1]:{self.port}": login, WORK: work}
        lines = [f"{host} {key.get_name()} {key.get_base64()}\n" for host, key in known_hosts.items()]
        (folder / "known_hosts").write_text("".join(lines))
        self.ssh_config.write_text(_CONFIG.format(port=self.port, user=user, folder=folder))

    def cut(self) -> None:
        """Cut the network: close all connections, and refuse new ones, until `restore`."""
        with self._lock:
            for sock in (self._listener, *self._connections):
                with contextlib.suppress(OSError):  # not connected any more
                    sock.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def restore(self) -> None:
        """Accept connections again, on the same port."""
        with self._lock:
            if self._listener.fileno() < 0:
                self._listener = socket.create_server(("127.0.0.1", self.port))
                self._accept_in_thread()

    def stop(self) -> None:
        """Cut the network, and kill all processes that are left on the nodes."""
        self.cut()
        end_processes(self.folder)

    def _accept_in_thread(self) -> None:
        self._connections: list[socket.socket] = []
        arguments = (self._listener,)
        threading.Thread(target=self._accept, args=arguments, name="practice login node", daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                sock, _ = listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    if self._listener is not listener or listener.fileno() < 0:  # cut in this moment
                        return sock.close()
                    self._connections.append(sock)
                self._login.serve(sock)

    def _environment(self, name: str) -> dict[str, str]:
        """The environment of a login, without variables of this process except the path to Python."""
        user = getpass.getuser()
        environment = {
            "HOME": str(self.folder / name),
            "USER": user,
            "LOGNAME": user,
            "SHELL": "/bin/sh",
            "HOSTNAME": name,
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "TMPDIR": str(self.folder / "tmp"),
            "PATH": os.pathsep.join([str(self.folder / "bin"), os.environ.get("PATH", os.defpath)]),
            MARK: str(self.folder),
            "JUPYTER_GPU_KERNEL_BASE": str(self.folder / "base"),  # where the agent makes its own folder
            "JUPYTER_GPU_KERNEL_SPARE": "off",  # a spare interpreter would outlive the demo's kernels
        }
        if site.ENABLE_USER_SITE:  # packages of `pip install --user` are found through the real home
            environment["PYTHONUSERBASE"] = site.getuserbase()
        return environment


def end_processes(folder: Path, timeout: float = 10.0) -> None:
    """Kill all processes of the cluster in `folder`."""
    deadline = time.monotonic() + timeout
    while (remaining := processes(folder)) and time.monotonic() < deadline:
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError):  # ended by itself
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)  # a killed process may just have started another one


def processes(folder: Path) -> list[int]:
    """The pids of the running processes of the cluster in `folder`, found by their environment."""
    mark = f"{MARK}={folder}".encode()
    found = []  # without zombies, which have no environment
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # another user's, or gone
            if mark in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
    return [pid for pid in found if pid != os.getpid()]
