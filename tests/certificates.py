"""An SSH certificate authority, made with ssh-keygen: certificates for users and hosts, and lists of revoked keys."""

from __future__ import annotations

import getpass
import subprocess
from pathlib import Path

from sshd import Sshd, make_key
from waiting import DEADLINE


class Authority:
    """`key` is its private key; the public half is beside it, as of every key here."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.key = make_key(folder / "authority")

    @property
    def public(self) -> str:
        """The public key as one line, without its comment."""
        return " ".join(Path(f"{self.key}.pub").read_text().split()[:2])

    def sign_user(self, key: Path, principal: str = "") -> Path:
        """Return the certificate for a user's key: the file KEY-cert.pub."""
        return self._sign(key, principal or getpass.getuser())

    def sign_host(self, key: Path, name: str = "127.0.0.1") -> Path:
        """Return the certificate for a host's key."""
        return self._sign(key, name, "-h")

    def _sign(self, key: Path, principal: str, *options: str) -> Path:
        command = ["ssh-keygen", "-q", "-s", str(self.key), "-I", key.name, "-n", principal, "-V", "-5m:+1d"]
        subprocess.run([*command, *options, f"{key}.pub"], check=True, timeout=DEADLINE)
        return Path(f"{key}-cert.pub")

    def known_hosts_line(self, hosts: str = "*") -> str:
        """The line that trusts the hosts' certificates of this authority."""
        return f"@cert-authority {hosts} {self.public}\n"

    def admit_users(self, server: Sshd, **options: str) -> None:
        """Restart the server: it now takes users' certificates, and no other key."""
        server.authorized.write_text("")
        server.restart(TrustedUserCAKeys=f"{self.key}.pub", **options)

    def certify(self, server: Sshd, **options: str) -> None:
        """Restart the server: it now shows a host certificate to those who ask for one."""
        server.restart(HostCertificate=str(self.sign_host(server.host_key)), **options)


def revocation_list(file: Path, *keys: Path) -> Path:
    """Return a binary list (KRL) that revokes these keys."""
    command = ["ssh-keygen", "-q", "-k", "-f", str(file), *(f"{key}.pub" for key in keys)]
    subprocess.run(command, check=True, timeout=DEADLINE)
    return file
