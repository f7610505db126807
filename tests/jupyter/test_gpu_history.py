"""`gpus --history`: the hours of a kernel that runs, and that has ended."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel
from remote import Remote
from waiting import DEADLINE

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote")]


def history(remote: Remote, kernel: str) -> list[dict[str, Any]]:
    done = remote.program("gpus", "gpu", "--history", "1h", "--json")
    assert done.returncode == 0, done.stderr
    return [row for row in json.loads(done.stdout) if row["kernel"] == kernel]


def test_the_hours_of_a_kernel(remote: Remote) -> None:
    manager, client = start_new_kernel(kernel_name="gpu")
    try:
        client.execute_interactive("import time; time.sleep(0.5)", timeout=DEADLINE)
        [kernel] = remote.kernels_on_node()
        [running] = history(remote, kernel)
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
    remote.nothing_left()
    [ended] = history(remote, kernel)
    assert running["to"] is None and running["uuid"] == ended["uuid"] and running["uuid"] in remote.free
    assert 0 < running["seconds_busy"] <= running["seconds_held"] <= ended["seconds_held"]
    assert ended["to"] >= ended["from"] and ended["name"] == "NVIDIA A100-SXM4-80GB"
    table = remote.program("gpus", "gpu", "--history").stdout
    assert kernel in table and "total" in table
    reported = [entry for entry in remote.story(kernel) if entry["event"] == "usage"]
    assert [entry["released"] for entry in reported] == [True]
