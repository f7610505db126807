"""`ps --wait`: until the cells of a kernel have ended, over a killed hub, with and without a front end."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from cells import connect, run, started, wait_for
from jupyter_client.manager import KernelManager
from remote import Remote
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.errors import HubError

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote")]


class Waits:
    """`jupyter gpu-kernel ps --wait …` in a process of its own."""

    def __init__(self, remote: Remote, *words: str) -> None:
        command = [sys.executable, "-m", "jupyter_gpu_kernel.cli", "ps", "--wait", *words]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env=remote.program_environment(), stdout=pipe, stderr=pipe, text=True
        )

    def until(self, text: str) -> None:
        """It has shown this."""
        assert self.process.stderr is not None
        shown = []
        for line in self.process.stderr:
            if text in line:
                return
            shown.append(line)
        raise AssertionError(f"no {text!r} in {shown}")

    def end(self) -> tuple[int, str, str]:
        output, errors = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, output, errors


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "gate"


def held(gate: Path) -> str:
    """A cell that runs until the file is there."""
    return f"import os, time\nprint('begun')\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.02)\n"


def there_is_a_hub(remote: Remote) -> bool:
    with contextlib.suppress(HubError):
        return remote.hub_pid() > 0
    return False


def id_of(remote: Remote) -> str:
    [kernel] = remote.ask("kernels")
    return str(kernel["id"])


@contextlib.contextmanager
def detached(remote: Remote, code: str) -> Iterator[str]:
    """A kernel that runs this cell, and that its front end has left; its id."""
    manager = KernelManager(kernel_name="cpu-argv")
    manager.start_kernel(env=remote.program_environment(JPY_SESSION_NAME="/home/alice/a.ipynb"))
    client = connect(manager)
    client.execute(code)
    wait_for(client, "stream")
    kernel_id = id_of(remote)
    client.stop_channels()
    assert manager.provisioner is not None
    psutil.Process(manager.provisioner.pid).terminate()
    eventually(lambda: not remote.ask("kernels"), "its front end has left it")
    manager.shutdown_kernel(now=True)  # only its launcher, which has ended
    try:
        yield kernel_id
    finally:
        assert remote.program("stop", kernel_id).returncode == 0


def test_all_cells_are_waited_for_also_over_a_killed_hub(remote: Remote, gate: Path) -> None:
    with started(remote, "cpu") as (_, client):
        client.execute(held(gate))
        client.execute("print('second')")
        wait_for(client, "stream")
        waits = Waits(remote, id_of(remote), "--json")
        waits.until("busy, 2 cells left")
        killed = psutil.Process(remote.hub_pid())
        killed.kill()
        killed.wait(DEADLINE)
        eventually(lambda: there_is_a_hub(remote), "another hub")
        gate.touch()
        wait_for(client, "stream", text="second\n")
        status, output, _ = waits.end()
        [row] = json.loads(output)
        cell = row["last_cell"]
        assert (status, cell["status"], cell["execution_count"]) == (0, "ok", 2), row
        assert (cell["code"], cell["error"]) == ("print('second')", "")


def test_how_the_last_cell_ended_is_the_exit_status(remote: Remote, gate: Path) -> None:
    with started(remote, "cpu") as (manager, client):
        kernel_id = id_of(remote)
        assert remote.program("ps", "--wait", kernel_id).returncode == 0, "no cell has run yet"
        client.execute("raise ValueError('no such layer')")
        run(client, "'aborted, as the cell before it failed'")
        failed = remote.program("ps", "--wait", kernel_id)
        assert failed.returncode == 1 and kernel_id in failed.stdout
        assert failed.stderr.endswith(" failed: ValueError: no such layer\n"), failed.stderr

        client.execute(held(gate))
        wait_for(client, "stream")
        late = remote.program("ps", "--wait", kernel_id, "--timeout", "0.1s")
        assert late.returncode == 124 and "busy" in late.stdout
        waits = Waits(remote, kernel_id)
        waits.until("busy")
        manager.interrupt_kernel()
        status, _, errors = waits.end()
        assert status == 1 and "failed: KeyboardInterrupt" in errors

        client.execute(held(gate))
        wait_for(client, "stream")
        waits = Waits(remote, kernel_id)
        waits.until("busy")
        waits.process.send_signal(signal.SIGINT)
        assert waits.end()[:2] == (130, "")


def test_a_kernel_without_a_front_end_and_one_that_ends(remote: Remote, gate: Path, tmp_path: Path) -> None:
    reported = tmp_path / "reported"
    tell = f"lambda cell: open({str(reported)!r}, 'w').write(cell.text)"
    tells = f"import gpu_kernel\nx = gpu_kernel.on_done({tell}, after=0)\n"
    with detached(remote, tells + held(gate)) as kernel_id, started(remote, "cpu") as (_, client):
        [other] = {row["id"] for row in remote.ask("kernels")}
        client.execute(held(tmp_path / "never"))
        wait_for(client, "stream")
        waits = Waits(remote, kernel_id, other, "--json")
        waits.until("busy")
        gate.touch()
        assert remote.program("stop", other).returncode == 0
        status, output, errors = waits.end()
        rows: list[dict[str, Any]] = json.loads(output)
        assert status == 1 and rows[0]["last_cell"]["status"] == "ok", rows
        assert rows[1]["state"] == "ended" and f"kernel {other} has ended: " in errors, errors
        assert f"jupyter gpu-kernel logs {other}" in errors
        assert reported.read_text().startswith("Cell [1] on ") and reported.read_text().endswith(": ok")
    unknown = remote.program("ps", "--wait", "nobody")
    assert unknown.returncode == 1 and "no node has a kernel nobody" in unknown.stderr
