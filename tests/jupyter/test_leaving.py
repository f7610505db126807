"""Leaving and coming back through the real doors: a Jupyter server that is ended and started again, VS Code."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cells import run
from jupyter_client.blocking.client import BlockingKernelClient
from launchers import Launcher
from remote import DEADLINE, Remote, eventually
from sshd import free_port

pytestmark = pytest.mark.usefixtures("remote")
NOTEBOOK = "/home/me/of-vs-code.ipynb"
STARTUP = f'if "__vsc_ipynb_file__" not in globals():\n    __vsc_ipynb_file__ = "{NOTEBOOK}"'


class Server:
    """A Jupyter server as a process, spoken to by its REST API."""

    def __init__(self, remote: Remote, root: Path) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        port = self.url.rpartition(":")[2]
        words = [sys.executable, "-m", "jupyter_server", "--no-browser", f"--port={port}", "--allow-root"]
        words += ["--IdentityProvider.token=secret", f"--ServerApp.root_dir={root}"]
        self.log = open(root / f"server-{port}.log", "wb")  # noqa: SIM115 (closed by `stop`)
        self.process = subprocess.Popen(
            words, env=remote.program_environment(), stdout=self.log, stderr=self.log, cwd=root
        )
        eventually(self.answers, "the server answers")

    def answers(self) -> bool:
        try:
            return bool(self.ask("GET", "/api"))
        except OSError:
            return False

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": "token secret", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            return json.loads(answer.read() or b"null")

    def open(self, notebook: str) -> str:
        """Jupyter's id of the kernel that the notebook gets."""
        body = {"path": notebook, "type": "notebook", "name": notebook, "kernel": {"name": "cpu"}}
        return str(self.ask("POST", "/api/sessions", body)["kernel"]["id"])

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(DEADLINE)
        self.log.close()


@pytest.fixture
def spec(remote: Remote) -> list[dict[str, Any]]:
    settings = {
        "route": list(remote.hops.route),
        "config": str(remote.hops.ssh_config),
        "python": sys.executable,
    }
    return [{"name": "cpu", "settings": settings}]


@pytest.fixture
def nothing_stays(remote: Remote, spec: list[dict[str, Any]]) -> Iterator[None]:
    yield
    for kernel in remote.ask("ps", specs=spec):
        remote.ask("stop", kernel=kernel["id"], specs=spec)
    remote.nothing_left()


@pytest.mark.usefixtures("nothing_stays")
def test_a_servers_exit_leaves_its_kernels_and_the_notebook_finds_its_own_again(
    remote: Remote, spec: list[dict[str, Any]], tmp_path: Path
) -> None:
    def kernels() -> dict[str, dict[str, Any]]:
        return {Path(kernel["notebook"]).name: kernel for kernel in remote.ask("ps", specs=spec)}

    with Server(remote, tmp_path) as server:
        server.open("a.ipynb")
        server.open("b.ipynb")
        before = kernels()
        assert set(before) == {"a.ipynb", "b.ipynb"}
    assert {kernel["id"] for kernel in kernels().values()} == {kernel["id"] for kernel in before.values()}

    with Server(remote, tmp_path) as server:
        kernel_id = server.open("a.ipynb")
        after = kernels()
        assert len(after) == 2, "no other kernel was started"
        assert after["a.ipynb"]["pid"] == before["a.ipynb"]["pid"]
        assert (after["a.ipynb"]["attached"], after["b.ipynb"]["attached"]) == (True, False)
        server.ask("DELETE", f"/api/kernels/{kernel_id}")
        assert set(kernels()) == {"b.ipynb"}, "what a user shuts down ends"


class OtherWindow(Launcher):
    """Another window of VS Code: its launchers have another parent."""

    def argv(self) -> list[str]:
        return ["sh", "-c", '"$@"; :', "sh", *super().argv()]


@pytest.mark.usefixtures("nothing_stays")
def test_vs_code_finds_a_notebooks_kernel_in_another_window(
    remote: Remote, spec: list[dict[str, Any]]
) -> None:
    def visit(launcher: Launcher) -> BlockingKernelClient:
        client = launcher.client()
        for code in ("import sys", STARTUP):
            run(client, code, store_history=False)
        return client

    first = Launcher(remote)
    run(visit(first), "treasure = 42")
    first.process.terminate()
    assert first.end() == (0, "")
    (left,) = remote.ask("ps", specs=spec)
    assert (left["notebook"], left["attached"]) == (NOTEBOOK, False)

    second = OtherWindow(remote)
    client = visit(second)
    assert "42" in str(run(client, "treasure").of("execute_result"))
    eventually(lambda: len(remote.kernels_on_node()) == 1, "the kernel that was started for it has gone")
    (same,) = remote.ask("ps", specs=spec)
    assert same["pid"] == left["pid"]
    for launcher in (first, second):
        launcher.close()
