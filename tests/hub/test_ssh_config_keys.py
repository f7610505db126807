"""The user's keys and certificates, for the real ssh and for us: the same one is offered, or neither connects."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Authority
from ssh_verdicts import Lab, assert_same
from sshd import make_key
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import GpuKernelError

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A login node."""
    lab = Lab(tmp_path_factory.mktemp("keys"))
    lab.login.start()
    yield lab
    lab.login.stop()


class Certified:
    """A lab whose server knows a key, or the authority of its certificate; the latter lies beside it and elsewhere."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        authority = Authority(folder / "authority")
        key, stranger = make_key(folder / "certified"), make_key(folder / "unknown")
        certificate = authority.sign_user(key)
        shutil.copy(certificate, folder / "elsewhere")
        self.files = {
            "key": key,
            "elsewhere": folder / "elsewhere",
            "stranger": authority.sign_user(stranger),
        }
        self._lines = {
            "the certificate": f"cert-authority {authority.public}\n",
            "the key": Path(f"{key}.pub").read_text(),
        }

    def admit(self, known: str) -> None:
        """Let the server know one or the other."""
        self.lab.login.authorized.write_text(self._lines[known])


@pytest.fixture(scope="module")
def certified(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certified]:
    before = lab.login.authorized.read_text()
    yield Certified(lab, tmp_path_factory.mktemp("certified"))
    lab.login.authorized.write_text(before)


def test_short_rsa_keys(lab: Lab, tmp_path: Path) -> None:
    """RequiredRSASize is for the user's keys as well as for the host's."""
    key = tmp_path / "short"
    command = ["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", str(key)]
    subprocess.run(command, check=True, timeout=DEADLINE)
    before = lab.login.authorized.read_text()
    lab.login.authorized.write_text(before + Path(f"{key}.pub").read_text())
    try:
        config = lab.config(f"IdentityFile {key}\n  RequiredRSASize 2048")
        theirs = lab.ssh(config)
        assert theirs is not None
        assert_same(config, theirs, lab.we(config))
        config = lab.config(f"IdentityFile {key}\n  RequiredRSASize 3072")
        assert lab.ssh(config) is None
        ours = lab.we(config)
        assert isinstance(ours, GpuKernelError) and "RequiredRSASize" in ours.cause
    finally:
        lab.login.authorized.write_text(before)


@pytest.mark.parametrize("known", ["the certificate", "the key"])
@pytest.mark.parametrize(
    "lines",
    [
        "IdentityFile {key}",
        "IdentityFile {key}\n  CertificateFile {elsewhere}",
        "IdentityFile {key}\n  CertificateFile {stranger}",
        "IdentityFile {key}\n  PubkeyAcceptedAlgorithms ssh-ed25519",
        "IdentityFile {key}\n  PubkeyAcceptedAlgorithms ssh-ed25519-cert-v01@openssh.com",
    ],
)
def test_certificates(certified: Certified, lines: str, known: str) -> None:
    certified.admit(known)
    lab = certified.lab
    config = lab.config(lines.format(**certified.files))
    theirs, ours = lab.ssh(config), lab.we(config)
    if theirs is None:
        assert isinstance(ours, GpuKernelError)
    else:
        assert_same(config, theirs, ours)
