"""The overview of nodes, GPUs and kernels that a real Jupyter server returns, over a real hub and a real node."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from remote import Remote
from server_fixtures import *  # noqa: F403 (for this file)
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel import kernelspecs
from jupyter_gpu_kernel.errors import GpuKernelError
from jupyter_gpu_kernel.server.api import STATE
from jupyter_gpu_kernel.server.running.overview import Overview, relative_path

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote", "nothing_stays")]
Fetch = Callable[..., Awaitable[Any]]
API = ("jupyter-gpu-kernel", "api")


async def overview(jp_fetch: Fetch, until: Callable[[Any], Any] = lambda shown: True) -> Any:
    """The first one for which this holds, as a page that asks again and again sees it."""
    deadline = time.monotonic() + DEADLINE
    while True:
        shown = json.loads((await jp_fetch(*API, "overview", request_timeout=DEADLINE)).body)
        if until(shown):
            return shown
        assert time.monotonic() < deadline, shown
        await asyncio.sleep(0.2)


def node_of(shown: Any, name: str) -> Any:
    return next(node for node in shown["nodes"] if name in node["names"])


async def start(jp_fetch: Fetch, notebook: Path, name: str) -> str:
    notebook.write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    model = {"path": notebook.name, "type": "notebook", "name": notebook.name, "kernel": {"name": name}}
    answer = await jp_fetch(
        "api", "sessions", method="POST", body=json.dumps(model), request_timeout=DEADLINE
    )
    return str(json.loads(answer.body)["kernel"]["id"])


async def test_one_answer_has_nodes_gpus_and_the_notebook_of_a_kernel(
    remote: Remote, jp_fetch: Fetch, jp_root_dir: Path
) -> None:
    kernel_id = await start(jp_fetch, jp_root_dir / "train.ipynb", "cpu")

    def is_complete(shown: Any) -> bool:
        return bool(
            shown["kernels"] and node_of(shown, "gpu")["gpus"] and node_of(shown, "gpu")["state"] == "up"
        )

    shown = await overview(jp_fetch, is_complete)
    node = node_of(shown, "gpu")
    assert {"cpu", "gpu", "cpu-argv", "gpu-argv"} <= set(node["names"])
    assert len(node["display_names"]) == len(node["names"]) and "Remote GPU (gpu)" in node["display_names"]
    assert (node["connected"], node["state"], node["problem"], node["cluster"]) == (True, "up", None, None)
    assert {gpu["uuid"] for gpu in node["gpus"]} == {remote.busy, *remote.free}
    for gpu in node["gpus"]:
        ((at, used, utilization),) = gpu["history"][-1:]
        assert abs(at - shown["time"]) < DEADLINE
        assert (used, utilization) == (gpu["memory_used_mib"], gpu["utilization"])
    (kernel,) = [one for one in shown["kernels"] if one["kernel_id"] == kernel_id]
    assert (kernel["path"], kernel["link"], kernel["attached"]) == ("train.ipynb", "up", True)
    assert (kernel["error"], kernel["busy_since"], kernel["ends_at"]) == (None, None, None)
    shown = await overview(jp_fetch, lambda shown: shown["kernels"][0]["round_trip_ms"] is not None)
    assert 0 < shown["kernels"][0]["round_trip_ms"] < 1000 * DEADLINE
    (brief,) = json.loads((await jp_fetch(*API, "kernels")).body)
    assert brief["round_trip_ms"] > 0
    await jp_fetch("api", "kernels", kernel_id, method="DELETE", request_timeout=DEADLINE)


async def test_a_node_that_cannot_be_reached_has_its_problem_and_delays_no_other(
    remote: Remote, jp_fetch: Fetch
) -> None:
    route = [remote.hops.route[0], "nobody@nowhere.invalid"]
    spec = remote.write("nowhere", route=route)
    try:
        shown = await overview(
            jp_fetch, lambda shown: node_of(shown, "nowhere")["problem"] and node_of(shown, "gpu")["gpus"]
        )
        node = node_of(shown, "nowhere")
        assert (node["connected"], node["gpus"], node["queue"]) == (False, [], [])
        assert node["problem"]["cause"] and node["problem"]["hop"]
    finally:
        kernelspecs.remove(spec.name)


async def test_a_refused_sign_in_is_not_tried_again_by_every_question_of_a_page(
    remote: Remote, jp_fetch: Fetch
) -> None:
    """A server blocks clients that fail often."""
    spec = remote.write("stranger", route=["stranger@login", "work"])

    def tries() -> int:
        return sum("stranger" in line and "preauth" in line for line in remote.hops.login.log)

    try:
        shown = await overview(jp_fetch, lambda shown: node_of(shown, "stranger")["problem"])
        assert node_of(shown, "stranger")["problem"]["kind"] == "AuthError"
        eventually(tries, "the server has logged it")
        before, times = tries(), {shown["time"]}
        while len(times) < 4:
            shown = await overview(jp_fetch)
            times.add(shown["time"])
            assert node_of(shown, "stranger")["problem"]["kind"] == "AuthError"
            await asyncio.sleep(0.3)
        assert tries() == before
        with pytest.raises(GpuKernelError):
            await asyncio.to_thread(remote.ask, "login", settings=spec.settings.to_json())
        eventually(lambda: tries() > before, "the user's own attempt is made")
    finally:
        kernelspecs.remove(spec.name)


async def test_pages_that_ask_at_once_share_an_answer(jp_fetch: Fetch) -> None:
    answers = await asyncio.gather(*(overview(jp_fetch) for _ in range(5)))
    assert len({answer["time"] for answer in answers}) == 1


async def test_after_a_change_no_page_gets_an_answer_from_before(jp_serverapp: Any) -> None:
    shared: Overview = jp_serverapp.web_app.settings[STATE].overview
    before = asyncio.create_task(shared.get())
    await asyncio.sleep(0)  # it is asking
    shared.outdated()
    after = await shared.get()
    assert await before is not after and await shared.get() is after


def test_a_path_is_that_of_a_file_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "root" / "sub").mkdir(parents=True)
    for name in ("root/sub/a.ipynb", "b.ipynb"):
        (tmp_path / name).touch()
    root = str(tmp_path / "root")
    assert relative_path(str(tmp_path / "root/sub/a.ipynb"), root) == "sub/a.ipynb"
    for other in ("", "sub/a.ipynb", str(tmp_path / "b.ipynb"), str(tmp_path / "root/none.ipynb"), "/\0"):
        assert relative_path(other, root) is None
    assert relative_path(str(tmp_path / "b.ipynb"), "") is None


def test_no_other_path_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node may have chosen it, such as one of a file server, to which Windows would sign in."""
    (tmp_path / "root").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "root")
    (tmp_path / "root" / "a.ipynb").touch()
    root = str(tmp_path / "root")
    looked, lstat = set[str](), os.lstat
    monkeypatch.setattr(os, "lstat", lambda path, **more: looked.add(os.fspath(path)) or lstat(path, **more))
    monkeypatch.setattr(os.path, "isfile", lambda path: looked.add(os.fspath(path)) or Path(path).exists())
    for other in ("/net/evil/a.ipynb", f"{root}/../../net/evil/a.ipynb", f"//net{root}/a.ipynb"):
        assert relative_path(other, root) is None
    assert not any("net" in path for path in looked)
    assert relative_path(f"{tmp_path}/link/a.ipynb", f"{tmp_path}/link") == "a.ipynb"
    assert relative_path(f"{root}/a.ipynb", f"{tmp_path}/link") == "a.ipynb"
