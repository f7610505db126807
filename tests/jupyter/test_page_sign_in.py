"""A page of a Jupyter server signs in for a kernel that VS Code starts: the start waits for it, and goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cells import run
from launchers import Launcher, launched
from locked import Owner, log_in
from remote import Remote
from servers import Server
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.client import HubClient
from jupyter_gpu_kernel.page_sign_in import LOOKING, files

API = "/jupyter-gpu-kernel/api"
NAME = "locked-argv"
pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote")]


def servers() -> list[Path]:
    """The marks of the servers that look for requests."""
    return sorted(files(LOOKING))


@pytest.fixture(scope="module")
def shared_server(remote_session: Remote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with remote_session.in_use(), Server(remote_session, tmp_path_factory.mktemp("server")) as one:
        eventually(servers, "it looks for requests")
        yield one


@pytest.fixture
def server(remote: Remote, locked: dict[str, Any], shared_server: Server) -> Iterator[Server]:
    """A server; and the kernelspec, to whose node there is no connection."""
    remote.write(NAME, **locked)
    with remote.in_use(), HubClient() as hub:
        hub.call("hang_up", timeout=DEADLINE)
        yield shared_server


def waiting(server: Server) -> list[dict[str, str]]:
    """What a page gets, and shows."""
    return list(server.ask("GET", f"{API}/sign-ins"))


def one_waits(server: Server) -> dict[str, str]:
    return dict(eventually(lambda: waiting(server), "a kernel waits", every=0.1)[0])


def sign_in(server: Server, answer: str | None) -> None:
    """Sign in as a page does, whose user answers the question, or cancels it."""
    call = threading.Thread(target=server.ask, args=("POST", f"{API}/nodes/{NAME}/login"), daemon=True)
    call.start()
    (question,) = eventually(lambda: server.ask("GET", f"{API}/prompts"), "a question", every=0.1)
    path = f"{API}/prompts/{question['id']}"
    if answer is None:
        server.ask("DELETE", path)
    else:
        server.ask("POST", path, {"answer": answer, "save": False})
    call.join(DEADLINE)


def test_a_start_waits_for_the_sign_in_in_a_page_and_goes_on(remote: Remote, server: Server) -> None:
    with launched(remote, NAME) as launcher:
        shown = one_waits(server)
        assert {**shown, "id": ""} == {"id": "", "name": NAME, "node": "login", "notebook": ""}
        sign_in(server, "sesame")
        client = launcher.client()
        assert run(client, "print(6 * 7)").text == "42\n"
        eventually(lambda: not waiting(server), "nothing waits any more")
        client.shutdown()
        assert launcher.end() == (0, "")
    remote.nothing_left()


def test_a_sign_in_in_a_terminal_serves_as_well(
    remote: Remote, server: Server, locked: dict[str, Any]
) -> None:
    with launched(remote, NAME) as launcher:
        one_waits(server)
        log_in(remote, locked, Owner())
        client = launcher.client()
        client.shutdown()
        assert launcher.end() == (0, "")
    remote.nothing_left()


def cancel_it(server: Server) -> None:
    server.ask("DELETE", f"{API}/sign-ins/{one_waits(server)['id']}")


def cancel_the_question(server: Server) -> None:
    one_waits(server)
    sign_in(server, None)


@pytest.mark.parametrize("cancel", [cancel_it, cancel_the_question])
def test_a_start_fails_when_the_user_cancels(remote: Remote, server: Server, cancel: Any) -> None:
    with launched(remote, NAME) as launcher:
        cancel(server)
        code, printed = launcher.end()
        assert (code, printed.splitlines()[0]) == (1, "login: you cancelled the sign-in.")
        assert f"login {NAME}" in printed
    eventually(lambda: not waiting(server), "nothing waits any more")
    remote.nothing_left()


def test_nobody_is_asked_any_more_when_the_launcher_has_left(remote: Remote, server: Server) -> None:
    with launched(remote, NAME) as launcher:
        one_waits(server)
        launcher.dispose()
        assert launcher.end() == (0, "")
        eventually(lambda: not waiting(server), "nothing waits any more")
    remote.nothing_left()


def fails_as_ever(launcher: Launcher) -> None:
    code, printed = launcher.end()
    assert code == 1 and "needs its passphrase" in " ".join(printed.split()) and f"login {NAME}" in printed


def test_without_a_page_the_start_fails(remote: Remote, server: Server) -> None:
    with launched(remote, NAME) as launcher:
        fails_as_ever(launcher)
    assert waiting(server) == []


def test_what_a_killed_server_has_left_is_removed(remote: Remote, server: Server, tmp_path: Path) -> None:
    before = servers()
    with Server(remote, tmp_path) as other:
        eventually(lambda: len(servers()) > len(before), "it looks for requests")
        other.kill()
    eventually(lambda: servers() == before, "what it has left is old")
    assert not list(before[0].parent.glob("*.json")), "no request is left"


def test_a_server_that_exits_leaves_nothing(remote: Remote, server: Server, tmp_path: Path) -> None:
    before = servers()
    with Server(remote, tmp_path):
        eventually(lambda: len(servers()) > len(before), "it looks for requests")
    assert servers() == before
