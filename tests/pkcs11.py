"""A PKCS#11 token in software (SoftHSM), whose one key never leaves it. Its PIN is `PIN`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from waiting import DEADLINE

PIN = "1234"
_LIBRARIES = (
    "/usr/lib/softhsm/libsofthsm2.so",
    "/usr/lib64/pkcs11/libsofthsm2.so",
    "/usr/local/lib/softhsm/libsofthsm2.so",
    "/opt/homebrew/lib/softhsm/libsofthsm2.so",
)


class Token:
    """`library` is what PKCS11Provider names; programs find the token with `environment`; `public` is its key."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("softhsm2-util")
        self.library = next((name for name in _LIBRARIES if os.path.exists(name)), "")
        if not program or not self.library:
            pytest.skip("no softhsm2-util and libsofthsm2.so on this machine (Debian: softhsm2)")
        (folder / "tokens").mkdir(parents=True)
        config = folder / "softhsm2.conf"
        config.write_text(
            f"directories.tokendir = {folder}/tokens\nobjectstore.backend = file\nlog.level = ERROR\n"
        )
        self.environment = {"SOFTHSM2_CONF": str(config)}
        key = folder / "key"
        command = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "256", "-m", "PKCS8", "-N", "", "-f", str(key)]
        subprocess.run(command, check=True, timeout=DEADLINE)
        self.public = Path(f"{key}.pub").read_text()
        for words in (
            ["--init-token", "--free", "--label", "practice", "--so-pin", PIN, "--pin", PIN],
            ["--import", str(key), "--token", "practice", "--label", "key", "--id", "01", "--pin", PIN],
        ):
            done = subprocess.run(
                [program, *words],
                env={**os.environ, **self.environment},
                capture_output=True,
                text=True,
                timeout=DEADLINE,
            )
            assert done.returncode == 0, done.stdout + done.stderr
        key.unlink()
