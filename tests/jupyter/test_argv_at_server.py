"""Kernelspecs with argv alone in a Jupyter server: the launcher gives all that the provisioner gives."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launchers import launched
from remote import Remote
from servers import Server
from waiting import DEADLINE, eventually

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote")]
API = "/jupyter-gpu-kernel/api/kernels"


@pytest.fixture(scope="module")
def server(remote: Remote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(remote, tmp_path_factory.mktemp("server")) as one:
        yield one


def the_kernel(server: Server) -> dict[str, Any]:
    (only,) = server.ask("GET", API)
    return dict(only)


def test_our_api_knows_the_kernel_by_jupyters_id(server: Server, remote: Remote) -> None:
    kernel_id = server.open("a.ipynb", "cpu-argv")
    server.page(kernel_id).run("print(6 * 7)")
    kernel = the_kernel(server)
    assert (kernel["kernel_id"], kernel["name"], kernel["link"]) == (kernel_id, "cpu-argv", "up")
    assert Path(kernel["notebook"]).name == "a.ipynb"
    journal = server.ask("GET", f"{API}/{kernel_id}/journal")
    assert [cell["code"] for cell in journal["cells"]] == ["print(6 * 7)"]
    server.ask("DELETE", f"/api/kernels/{kernel_id}")
    remote.nothing_left()


def exits(server: Server, remote: Remote) -> str:
    return "import os; os._exit(3)"


def is_stopped_in_a_terminal(server: Server, remote: Remote) -> str:
    command = [sys.executable, "-m", "jupyter_gpu_kernel.cli", "stop", the_kernel(server)["id"]]
    subprocess.run(command, env=remote.program_environment(), check=True, timeout=DEADLINE)
    return ""


@pytest.mark.parametrize("end", [exits, is_stopped_in_a_terminal])
def test_a_kernel_that_ends_is_started_anew_by_the_next_cell_and_not_before(
    server: Server, remote: Remote, end: Any
) -> None:
    kernel_id = server.open("b.ipynb", "cpu-argv")
    page = server.page(kernel_id)
    page.run("treasure = 1")
    if code := end(server, remote):
        page.until(page.execute(code), "execute_reply", status="error")
    eventually(lambda: the_kernel(server)["state"] == "ended", "it has ended")
    assert page.run("print('treasure' in globals())") == "False\n"
    assert the_kernel(server)["kernel_id"] == kernel_id
    assert not any(m["content"].get("execution_state") in ("restarting", "dead") for m in page.received)
    server.ask("DELETE", f"/api/kernels/{kernel_id}")
    remote.nothing_left()


def test_an_ended_kernel_is_restarted_and_shut_down(server: Server, remote: Remote) -> None:
    kernel_id = server.open("c.ipynb", "cpu-argv")
    page = server.page(kernel_id)
    page.run("treasure = 1")
    is_stopped_in_a_terminal(server, remote)
    eventually(lambda: the_kernel(server)["link"] == "lost", "it has ended, and its keeper has")
    server.ask("POST", f"/api/kernels/{kernel_id}/restart")
    assert page.run("print(1)") == "1\n"
    page.until(page.execute("import os; os._exit(3)"), "execute_reply", status="error")
    eventually(lambda: the_kernel(server)["state"] == "ended", "it has ended")
    server.ask("DELETE", f"/api/kernels/{kernel_id}")
    remote.nothing_left()


def test_a_name_alone_makes_no_server(remote: Remote) -> None:
    """`jupyter kernel` names its connection files so, too: its launcher must end with the kernel."""
    with launched(remote, file_name="kernel-01234567-89ab-cdef-0123-456789abcdef.json") as launcher:
        client = launcher.client()
        assert remote.ask("kernels")[0]["kernel_id"] == ""
        client.execute("import os; os._exit(3)")
        code, stderr = launcher.end()
        assert code == 1 and "the kernel ended" in stderr
    remote.nothing_left()
