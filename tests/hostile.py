"""A hostile node: its agent gives the answers that a test sets."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from remote import Remote
from sshd import Sshd

from jupyter_gpu_kernel.errors import GpuKernelError

HOSTILE = str(Path(__file__).parent / "programs" / "hostile-python")


class Hostile:
    """A hostile node with an SSH server. Its kernelspec is “aaa”, so commands ask this node first."""

    def __init__(self, remote: Remote, folder: Path) -> None:
        self.remote = remote
        self.server = Sshd("hostile", folder, remote.hops.key)
        self.file = folder / "answers.json"
        known = folder / "known_hosts"
        known.write_text(self.server.known_hosts_line())
        self.config = folder / "ssh_config"
        self.config.write_text(
            f"Host hostile\n HostName 127.0.0.1\n Port {self.server.port}\n IdentityFile {remote.hops.key}\n"
            f" IdentityAgent none\n UserKnownHostsFile {known}\n GlobalKnownHostsFile none\n"
        )
        self.server.environment.update(
            HOSTILE_ANSWERS=str(self.file), JUPYTER_GPU_KERNEL_BASE=str(folder), PATH="/usr/bin:/bin"
        )
        self.sends()
        self.server.start()

    @property
    def settings(self) -> dict[str, Any]:
        return {"route": ["hostile"], "config": str(self.config), "python": HOSTILE, "gpus": 0}

    def sends(self, **answers: Any) -> None:
        """Set the answers to requests, by the request's name: texts as they are sent, or JSON values."""
        texts = {do: one if isinstance(one, str) else json.dumps(one) for do, one in answers.items()}
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(texts))
        new.replace(self.file)


@pytest.fixture(scope="module")
def hostile(remote: Remote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    node = Hostile(remote, tmp_path_factory.mktemp("hostile"))
    written = remote.write("aaa", **node.settings)
    try:
        yield node
    finally:
        with contextlib.suppress(GpuKernelError):
            remote.ask("hang_up")
        node.server.stop()
        shutil.rmtree(written.path.parent)


def status(kernel_id: str, **more: Any) -> dict[str, Any]:
    known = {"id": kernel_id, "name": "n", "node": "work", "state": "idle", "gpus": [], "pid": 1}
    return {**known, "notebook": "", "attached": False, "since": time.time(), **more}
