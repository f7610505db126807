"""A backend for the package `keyring`, whose store is the file KEYRING_FILE: test machines have no system keyring."""

from __future__ import annotations

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError


class FileKeyring(KeyringBackend):
    priority = 1.0  # type: ignore[assignment]

    def get_password(self, service: str, username: str) -> str | None:
        return self._read().get(f"{service} {username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._write({**self._read(), f"{service} {username}": password})

    def delete_password(self, service: str, username: str) -> None:
        stored = self._read()
        if stored.pop(f"{service} {username}", None) is None:
            raise PasswordDeleteError(username)
        self._write(stored)

    def _read(self) -> dict[str, str]:
        file = Path(os.environ["KEYRING_FILE"])
        return dict(json.loads(file.read_text())) if file.exists() else {}

    def _write(self, stored: dict[str, str]) -> None:
        Path(os.environ["KEYRING_FILE"]).write_text(json.dumps(stored))
