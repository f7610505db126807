"""VS Code's ways with a launcher: every start has its own key and ports, and its end is a SIGTERM to all.

Whether that means restart or return the hub has to tell; a window is known by the launcher's parent process.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from cells import all_it_printed, run, wait_for
from jupyter_client.blocking.client import BlockingKernelClient
from launchers import Launcher, launched
from remote import Remote
from waiting import DEADLINE, eventually

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote", "nothing_stays")]
NOTEBOOK = "/home/me/of-vs-code.ipynb"
STARTUP = f'if "__vsc_ipynb_file__" not in globals():\n    __vsc_ipynb_file__ = "{NOTEBOOK}"'


def visit(launcher: Launcher) -> BlockingKernelClient:
    """A notebook's client, with what VS Code runs before any cell."""
    client = launcher.client()
    for code in ("import sys", STARTUP):
        run(client, code, store_history=False)
    return client


class OtherWindow(Launcher):
    """Another window: its launchers have another parent."""

    def argv(self) -> list[str]:
        return ["sh", "-c", '"$@"; :', "sh", *super().argv()]


def test_another_window_finds_the_notebooks_kernel(remote: Remote, spec: list[dict[str, Any]]) -> None:
    first = Launcher(remote)
    run(visit(first), "treasure = 42")
    first.dispose()
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


def test_a_hub_is_killed_after_a_notebook_got_its_kernel_back(remote: Remote) -> None:
    """The next hub finds what was passed on by the id that the kernel has now."""
    first = Launcher(remote)
    run(visit(first), "treasure = 42")
    first.dispose()
    assert first.end() == (0, "")
    second = OtherWindow(remote)
    client = visit(second)
    assert "42" in str(run(client, "treasure").of("execute_result"))
    asked = client.execute("import time\nfor i in range(300): print(i, flush=True); time.sleep(0.01)")
    wait_for(client, "stream", text="0\n")
    psutil.Process(remote.hub_pid()).kill()
    assert all_it_printed(client, asked).split() == [str(number) for number in range(1, 300)]
    assert client.get_shell_msg(timeout=DEADLINE)["content"]["status"] == "ok"
    second.close()
    first.close()


def at_once(new: Launcher) -> None:
    """The old one is told to go when the new process is hardly there."""


def bound(new: Launcher) -> None:
    eventually(lambda: new.in_use(new.connection["shell_port"]), "the new one has bound its ports")


def answered(new: Launcher) -> None:
    new.client()


def known(new: Launcher) -> None:
    visit(new)


@pytest.mark.parametrize("until", [at_once, bound, answered, known])
def test_a_restart_overlaps_the_old_one(remote: Remote, until: Callable[[Launcher], None]) -> None:
    """The new launcher starts first. Its kernel is a fresh one, and the old one ends before its first cell."""
    with launched(remote) as old:
        run(visit(old), "x = 1")
        (before,) = remote.kernels_on_node()
        with launched(remote) as new:
            until(new)
            old.dispose()
            assert old.end() == (0, "")
            client = visit(new)
            eventually(lambda: before not in remote.kernels_on_node(), "the old one has gone")
            cell = run(client, "print('x' in globals())")
            assert cell.text == "False\n"
            assert f"new kernel on {socket.gethostname()}; the previous one, {before}, has ended" in str(
                cell.messages
            )
            assert run(client, "print(6 * 7)").text == "42\n"
            assert len(remote.kernels_on_node()) == 1


def test_a_closed_notebooks_cell_goes_on(remote: Remote, spec: list[dict[str, Any]]) -> None:
    """What it printed meanwhile is there for the notebook that comes back from another window."""
    end = remote.folder / "end-of-cell"
    with launched(remote) as first:
        visit(first).execute(
            f"import os, time\nprint('begun')\nwhile not os.path.exists({str(end)!r}): time.sleep(0.01)\n"
            "print('ended')",
            stop_on_error=False,
        )
        wait_for(first.clients[0], "stream", text="begun\n")
        first.dispose()
        assert first.end() == (0, "")
        (busy,) = remote.ask("ps", specs=spec)
        assert (busy["state"], busy["attached"]) == ("busy", False)
        end.touch()
        eventually(lambda: remote.ask("ps", specs=spec)[0]["state"] == "detached", "the cell ends")
    with contextlib.closing(OtherWindow(remote)) as second:
        client = visit(second)
        assert "ended" in run(client, "%gpu missed").text
    end.unlink()


def test_a_restart_in_an_outage_in_which_the_hub_is_killed(
    remote: Remote, spec: list[dict[str, Any]]
) -> None:
    """The next hub does not know of the restart, whose window has gone: the notebook returns to its kernel."""
    with launched(remote) as old:
        run(visit(old), "treasure = 42")
        (before,) = remote.kernels_on_node()
        remote.hops.login.stop()
        try:
            eventually(lambda: [row["link"] for row in remote.ask("kernels")] == ["away"], "the hub notices")
            with launched(remote) as new:
                new.client()
                old.dispose()
                assert old.end() == (0, "")
                visit(new)
                psutil.Process(remote.hub_pid()).kill()
                code, printed = new.end()
                assert code == 1 and "hub" in printed
        finally:
            remote.hops.login.start()
    with contextlib.closing(OtherWindow(remote)) as second:
        cell = run(visit(second), "print('treasure' in globals())")
        assert cell.text == "True\n"
        assert remote.kernels_on_node() == [before]
