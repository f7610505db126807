"""A Jupyter server is ended, in every way, and started again: its kernels stay, but for those shut down."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from remote import Remote
from servers import Server
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.client import HubClient

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote")]


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


@pytest.mark.usefixtures("nothing_stays")
@pytest.mark.parametrize("name", ["cpu", "cpu-argv"])
def test_a_renamed_notebook_finds_its_kernel(
    remote: Remote, spec: list[dict[str, Any]], tmp_path: Path, name: str
) -> None:
    """As most are: “Untitled” when the kernel starts, something better later, perhaps in another folder."""

    def notebooks() -> list[str]:
        return [
            str(Path(kernel["notebook"]).relative_to(tmp_path)) for kernel in remote.ask("ps", specs=spec)
        ]

    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "Untitled.ipynb").write_text("{}")
    with Server(remote, tmp_path) as server:
        page = server.page(server.open("notes/Untitled.ipynb", name))
        assert page.run("treasure = 42") == ""
        server.ask("PATCH", "/api/contents/notes/Untitled.ipynb", {"path": "notes/training.ipynb"})
        eventually(lambda: notebooks() == ["notes/training.ipynb"], "the notebook's new name")
        server.ask("PATCH", "/api/contents/notes", {"path": "papers"})
        eventually(lambda: notebooks() == ["papers/training.ipynb"], "its folder's new name")
    with Server(remote, tmp_path) as server:
        kernel_id = server.open("papers/training.ipynb", name)
        page = server.page(kernel_id)
        assert page.run("print(treasure)") == "42\n"
        server.ask("DELETE", f"/api/kernels/{kernel_id}")
    eventually(lambda: not remote.kernels_on_node(), "the kernel is gone")


@pytest.mark.usefixtures("nothing_stays")
def test_a_kernel_that_a_notebook_left_stays_when_it_leaves_again_at_once(
    remote: Remote, spec: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Before it heard of it: a start that is given up ends the kernel that was made for it, not this one."""
    gate = tmp_path / "gate"
    gate.touch()
    (tmp_path / "sitecustomize.py").write_text(
        f"import os, sys, time\nwhile 'ipykernel' in sys.orig_argv and not os.path.exists({str(gate)!r}):\n"
        "    time.sleep(0.01)\n"
    )
    settings = {**spec[0]["settings"], "gpus": 0, "env": {"PYTHONPATH": str(tmp_path)}}
    connection = {"transport": "tcp", "ip": "127.0.0.1", "key": "key"}
    start = {"settings": settings, "name": "cpu", "notebook": "/twice.ipynb", "connection": connection}
    with HubClient() as hub:
        kernel = hub.call("start", timeout=DEADLINE, **start)["id"]
        gate.unlink()
        hub.call("command", kernel=kernel, do="restart", timeout=DEADLINE)

    def left() -> list[tuple[str, str, bool]]:
        return [(row["id"], row["state"], row["attached"]) for row in remote.ask("ps", specs=spec)]

    eventually(lambda: left() == [(kernel, "starting", False)], "it is left")
    with HubClient() as hub, ThreadPoolExecutor(1) as pool:
        pool.submit(hub.call, "start", **start)
        eventually(lambda: [one["id"] for one in remote.ask("kernels")] == [kernel], "it is found")
        hub.close()
    eventually(lambda: remote.ask("kernels") == [], "it is left again")
    gate.touch()
    eventually(lambda: remote.ask("ps", specs=spec)[0]["state"] == "detached", "it is there")
    assert remote.kernels_on_node() == [kernel]


def ctrl_c_and_yes(server: Server) -> None:
    server.type("\x03")
    server.sends("Shut down this Jupyter server")
    server.type("y\n")


def ctrl_c_twice(server: Server) -> None:
    server.type("\x03")
    server.sends("Shut down this Jupyter server")
    server.type("\x03")


def interrupted(server: Server) -> None:
    server.server.send_signal(signal.SIGINT)


def terminated(server: Server) -> None:
    server.server.send_signal(signal.SIGTERM)


def killed(server: Server) -> None:
    server.server.kill()


PRINT = """import os, time
number = 0
while not os.path.exists({end!r}):
    print(number, flush=True)
    number += 1
    with open({progress!r} + ".new", "w") as file:
        print(number, file=file)
    os.replace({progress!r} + ".new", {progress!r})
    time.sleep(0.01)
print("end", number)"""


@pytest.mark.usefixtures("nothing_stays")
@pytest.mark.parametrize("leave", [ctrl_c_and_yes, ctrl_c_twice, interrupted, terminated, killed])
def test_a_server_ended_in_mid_cell(
    remote: Remote, spec: list[dict[str, Any]], tmp_path: Path, leave: Callable[[Server], None]
) -> None:
    """The kernel lives, its cell ends, and the notebook gets it back with what was printed meanwhile."""

    def kernel() -> dict[str, Any]:
        (only,) = remote.ask("ps", specs=spec)
        return dict(only)

    def printed() -> int:
        return int(progress.read_text())

    end, progress = tmp_path / "end", tmp_path / "progress"
    with Server(remote, tmp_path, terminal=leave in (ctrl_c_and_yes, ctrl_c_twice)) as server:
        page = server.page(server.open("a.ipynb"))
        asked = page.execute(PRINT.format(end=str(end), progress=str(progress)))
        page.until(asked, "stream")
        before = kernel()
        leave(server)
        received = page.rest(asked)
        server.ended()
    during = eventually(lambda: not (now := kernel())["attached"] and now, "it is detached")
    assert (during["pid"], during["state"]) == (before["pid"], "busy")
    detached_at = printed()
    eventually(lambda: printed() > detached_at + 50, "the cell goes on")
    end.touch()
    eventually(lambda: kernel()["state"] == "detached", "the cell ends")

    with Server(remote, tmp_path) as server:
        page = server.page(server.open("a.ipynb"))
        missed = page.run("%gpu missed")
        assert kernel()["pid"] == before["pid"]
        # What is on its way through a server that is killed goes with it; one that ends loses nothing.
        first = detached_at if leave in (interrupted, killed) else 0
        numbers = {int(word) for word in (received + missed).split() if word.isdigit()}
        assert numbers >= set(range(first, printed()))
        assert f"end {printed()}" in missed


@pytest.mark.usefixtures("nothing_stays")
def test_a_server_ends_at_the_first_signal_after_a_refused_start(remote: Remote, tmp_path: Path) -> None:
    """And the kernels that did start are left as ever."""
    remote.write("spoilt", provisioner=True, python="/nowhere/bin/python")
    with Server(remote, tmp_path) as server:
        kernel_id = server.open("a.ipynb")
        with pytest.raises(HTTPError, match="500"):
            server.open("b.ipynb", "spoilt")
        terminated(server)
        server.ended()
        assert "Traceback" not in server.log.read_text().partition("received signal")[2]
    (left,) = remote.kernels_on_node()
    assert kernel_id and left


@pytest.mark.usefixtures("nothing_stays")
def test_kernels_that_a_server_started_by_argv_stay_too(
    remote: Remote, spec: list[dict[str, Any]], tmp_path: Path
) -> None:
    with Server(remote, tmp_path) as server:
        server.page(server.open("a.ipynb", "cpu-argv")).run("x = 42")
    (left,) = remote.ask("ps", specs=spec)
    assert left["state"] == "detached"
    with Server(remote, tmp_path) as server:
        kernel_id = server.open("a.ipynb", "cpu-argv")
        assert "42" in server.page(kernel_id).run("print(x)")
        server.ask("DELETE", f"/api/kernels/{kernel_id}")
    remote.nothing_left()


@pytest.mark.usefixtures("nothing_stays")
@pytest.mark.parametrize("leave", [terminated, killed])
def test_what_a_user_shuts_down_ends_although_the_server_goes_at_once(
    remote: Remote, tmp_path: Path, leave: Callable[[Server], None]
) -> None:
    with Server(remote, tmp_path) as server:
        server.page(server.open("a.ipynb")).run("x = 1")
    with Server(remote, tmp_path) as server:  # and it was only just started
        kernel_id = server.open("a.ipynb")
        server.ask("DELETE", f"/api/kernels/{kernel_id}")
        leave(server)
    remote.nothing_left()


@pytest.mark.usefixtures("nothing_stays")
def test_a_server_that_goes_while_it_shuts_a_kernel_down(remote: Remote, tmp_path: Path) -> None:
    """Its kernels stay, but for the one whose user has just ended it, which does not know so yet."""
    with Server(remote, tmp_path) as server:
        kernel_id = server.open("a.ipynb")
        server.page(kernel_id).run("x = 1")

        def shut_down() -> None:
            with contextlib.suppress(OSError):  # the server went before it could answer
                server.ask("DELETE", f"/api/kernels/{kernel_id}")

        user = threading.Thread(target=shut_down)
        with remote.hops.login.stalled():
            user.start()
            server.sends(f"Kernel shutdown: {kernel_id}")
            terminated(server)
            server.ended()
        user.join(DEADLINE)
    remote.nothing_left()
