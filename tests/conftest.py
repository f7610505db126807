"""Fixtures every test may use; each lives in a file of its own."""

from __future__ import annotations

pytest_plugins = ["sshd", "house", "remote"]
