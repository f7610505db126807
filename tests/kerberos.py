"""A Kerberos realm on loopback: a real KDC as a process of the test, with its database in a temporary folder.

The realm knows the user who runs the tests, and the service of an sshd on `localhost`, which `environment` lets
accept tickets. No root is needed, and nothing of the system's own Kerberos configuration is read.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from sshd import Sshd, free_port
from waiting import DEADLINE, eventually

NAME = "PRACTICE.TEST"
_CONFIG = """[libdefaults]
  default_realm = {name}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
[realms]
  {name} = {{
    kdc = 127.0.0.1:{port}
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
    acl_file = {folder}/acl
  }}
[domain_realm]
  localhost = {name}
[kdcdefaults]
  kdc_listen = ""
  kdc_tcp_listen = 127.0.0.1:{port}
[logging]
  kdc = FILE:{folder}/kdc.log
"""


def _program(name: str) -> str:
    """Its path; skips the test where there is none."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if not found:
        pytest.skip(f"no {name} on this machine (Debian: krb5-kdc krb5-admin-server krb5-user)")
    return found


class Realm:
    """`environment` is for sshd; with that of `sign_in`, ssh has the user's ticket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.user = getpass.getuser()
        self._port = free_port()
        self._programs = {name: _program(name) for name in ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")}
        config = folder / "krb5.conf"
        config.write_text(_CONFIG.format(name=NAME, folder=folder, port=self._port))
        self.environment = {
            "KRB5_CONFIG": str(config),
            "KRB5_KDC_PROFILE": str(config),
            "KRB5_KTNAME": str(folder / "keytab"),
        }
        self._run("kdb5_util", "create", "-s", "-r", NAME, "-P", "the master's password")
        self._run(
            "kadmin.local",
            stdin=f"addprinc -pw sesame {self.user}\naddprinc -randkey host/localhost\n"
            f"ktadd -k {folder}/keytab host/localhost\n",
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return once the KDC answers."""
        command = [self._programs["krb5kdc"], "-n", "-P", str(self.folder / "kdc.pid")]
        with (self.folder / "kdc.out").open("wb") as output:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        eventually(self._listens, f"the KDC listens: {(self.folder / 'kdc.out').read_text()}")

    def _listens(self) -> bool:
        assert self._process is not None and self._process.poll() is None, "the KDC has ended"
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self._port)) == 0

    def stop(self) -> None:
        """The KDC ends."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(DEADLINE)

    def sign_in(self, cache: Path) -> dict[str, str]:
        """Get the user's ticket into `cache`; return the environment in which programs find it."""
        environment = {"KRB5_CONFIG": self.environment["KRB5_CONFIG"], "KRB5CCNAME": f"FILE:{cache}"}
        self._run("kinit", "-c", environment["KRB5CCNAME"], self.user, stdin="sesame\n")
        return environment

    def admit(self, server: Sshd) -> None:
        """Restart the server: it now takes tickets, and nothing else."""
        server.process_environment = self.environment
        server.restart(
            GSSAPIAuthentication="yes",
            GSSAPIStrictAcceptorCheck="no",
            PubkeyAuthentication="no",
            LogLevel="DEBUG",
        )

    def _run(self, name: str, *arguments: str, stdin: str = "") -> None:
        done = subprocess.run(
            [self._programs[name], *arguments],
            input=stdin,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
