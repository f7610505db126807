"""A Jupyter server asks its user in the browser: starts that wait for answers, wrong ones, cancelled, stored ones."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from remote import Remote
from servers import Server
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.client import HubClient

API = "/jupyter-gpu-kernel/api"
PROGRAMS = Path(__file__).resolve().parent.parent / "programs"
pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote")]


class Browser:
    """What a page does: it fetches questions and answers them."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def asked(self) -> dict[str, Any]:
        """The first question, once there is one."""
        return dict(eventually(lambda: self._server.ask("GET", f"{API}/prompts"), "a question", every=0.1)[0])

    def answer(self, text: str, save: bool = False) -> dict[str, Any]:
        """Answer the first question; return it."""
        question = self.asked()
        self._server.ask("POST", f"{API}/prompts/{question['id']}", {"answer": text, "save": save})
        return question

    def cancel(self) -> None:
        self._server.ask("DELETE", f"{API}/prompts/{self.asked()['id']}")


class Asked(threading.Thread):
    """A request that waits for answers. `result`, or `refusal`."""

    def __init__(self, server: Server, method: str, path: str, body: Any = None) -> None:
        super().__init__(daemon=True)
        self.result: Any = None
        self.refusal = ""
        self._ask = lambda: server.ask(method, path, body)
        self.start()

    def run(self) -> None:
        try:
            self.result = self._ask()
        except HTTPError as error:
            self.refusal = json.loads(error.read())["message"]

    def done(self) -> Any:
        self.join()
        return self.result


@pytest.fixture
def keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with what is stored."""
    file = tmp_path / "keyring.json"
    monkeypatch.setenv("KEYRING_FILE", str(file))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "file_keyring.FileKeyring")
    monkeypatch.setenv("PYTHONPATH", str(PROGRAMS))
    return file


@pytest.fixture
def server(remote: Remote, tmp_path: Path, locked: dict[str, Any], keyring: Path) -> Iterator[Server]:
    remote.write("locked", provisioner=True, **locked)
    hang_up(remote)
    with remote.in_use(), Server(remote, tmp_path) as one:
        yield one


def hang_up(remote: Remote) -> None:
    with remote.in_use(), HubClient() as hub:
        hub.call("hang_up", timeout=DEADLINE)


def start(server: Server, notebook: str = "a.ipynb") -> Asked:
    body = {"path": notebook, "type": "notebook", "name": notebook, "kernel": {"name": "locked"}}
    return Asked(server, "POST", "/api/sessions", body)


def until_both_wait(remote: Remote) -> None:
    """A start that begins after the answer, or after the user has cancelled, would be asked again."""
    with remote.in_use(), HubClient() as hub:
        eventually(lambda: len(hub.call("kernels", timeout=DEADLINE)) == 2, "two starting kernels")


def test_starts_wait_for_the_answer_and_no_answer_is_ever_readable(remote: Remote, server: Server) -> None:
    browser = Browser(server)
    starts = [start(server), start(server, "b.ipynb")]
    question = browser.answer("a wrong word")
    assert (question["hop"], question["kind"], question["again"]) == ("login", "passphrase", False)
    assert question["for"]["what"] == "kernel" and question["for"]["notebook"] in ("a.ipynb", "b.ipynb")
    assert question["saveable"] and "sesame" not in json.dumps(question)
    again = browser.answer("sesame")
    assert again["again"] and again["prompt"].startswith("Wrong passphrase.")
    kernels = [one.done()["kernel"]["id"] for one in starts]
    assert server.ask("GET", f"{API}/prompts") == []
    logs = [server.log, *(remote.runtime.rglob("*.log")), *(remote.data.rglob("*"))]
    for file in logs:
        text = file.read_text(errors="replace") if file.is_file() else ""
        assert "sesame" not in text and "a wrong word" not in text, file
    for kernel in kernels:
        server.ask("DELETE", f"/api/kernels/{kernel}")


def test_a_cancelled_start_says_so_and_a_sign_in_can_be_made_later(remote: Remote, server: Server) -> None:
    browser = Browser(server)
    starts = [start(server), start(server, "b.ipynb")]
    until_both_wait(remote)
    browser.cancel()
    for one in starts:
        one.done()
        assert one.refusal.startswith("login: you cancelled the sign-in\nTo be asked again, start it again")
        assert "login locked" in one.refusal
    sign_in = Asked(server, "POST", f"{API}/nodes/locked/login")
    browser.cancel()
    assert sign_in.done() == {"ok": False, "cancelled": True}
    sign_in = Asked(server, "POST", f"{API}/nodes/locked/login")
    assert browser.answer("sesame")["for"] == {"what": "login", "name": "locked", "notebook": ""}
    assert sign_in.done() == {"ok": True, "node": "work", "errors": []}
    kernel = start(server).done()["kernel"]["id"]
    server.ask("DELETE", f"/api/kernels/{kernel}")


def test_a_restart_after_a_lost_connection_asks_as_a_start_does(remote: Remote, server: Server) -> None:
    browser = Browser(server)
    started = start(server)
    browser.answer("sesame")
    kernel = started.done()["kernel"]["id"]
    remote.hops.login.drop()
    restarted = Asked(server, "POST", f"/api/kernels/{kernel}/restart")
    question = browser.answer("sesame")
    assert question["for"] == {"what": "kernel", "name": "locked", "notebook": "a.ipynb"}
    assert restarted.done()["id"] == kernel, restarted.refusal
    server.ask("DELETE", f"/api/kernels/{kernel}")


def test_a_stored_answer_is_tried_once_and_deleted_when_it_is_wrong(
    remote: Remote, server: Server, keyring: Path
) -> None:
    browser = Browser(server)
    login = f"{API}/nodes/locked/login"
    first = Asked(server, "POST", login)
    browser.answer("a wrong word", save=True)
    browser.answer("sesame", save=True)
    assert first.done()["ok"]
    stored = json.loads(keyring.read_text())
    assert sorted(stored.values())[-1] == "sesame" and "a wrong word" not in stored.values()
    hang_up(remote)
    assert Asked(server, "POST", login).done()["ok"], "without a question"
    hang_up(remote)
    keyring.write_text(json.dumps({of: "stale" if it == "sesame" else it for of, it in stored.items()}))
    third = Asked(server, "POST", login)
    browser.answer("sesame", save=True)
    assert third.done()["ok"] and "stale" not in keyring.read_text()
    assert json.loads(keyring.read_text()) == stored
    words = [sys.executable, "-m", "jupyter_gpu_kernel.cli", "remove", "locked"]
    subprocess.run(words, env=remote.program_environment(), check=True, timeout=DEADLINE)
    assert json.loads(keyring.read_text()) == {}


def test_without_a_kernelspec_there_is_nothing_to_sign_in_to(server: Server) -> None:
    asked = Asked(server, "POST", f"{API}/nodes/nowhere/login")
    asked.done()
    assert "there is no remote GPU kernelspec nowhere" in asked.refusal
