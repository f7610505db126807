"""A user's git repository, in a folder of a test."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Repository:
    """A user's repository with one commit, in the folder `project`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "sub").mkdir(parents=True)
        self.git("init", "-q")
        self.git("config", "user.email", "alice@example.org")
        self.git("config", "user.name", "Alice")
        (path / ".gitignore").write_text("*.ckpt\n")
        (path / "sub" / "lib.py").write_text("VALUE = 'sub'\n")
        self.commit("one")

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=str(self.path), check=True, stdout=subprocess.PIPE)
        return done.stdout.decode().strip()

    def commit(self, value: str) -> str:
        """Commits a module whose VALUE is this; returns the commit."""
        self.edit(value)
        self.git("add", "--all")
        self.git("commit", "-q", "-m", f"value {value}")
        return self.git("rev-parse", "HEAD")

    def edit(self, value: str) -> None:
        (self.path / "lib.py").write_text(f"VALUE = {value!r}\n")
