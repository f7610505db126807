"""Notebooks that run at once through nbclient: each gets a GPU of its own, and all free GPUs are in use."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from remote import Remote
from waiting import DEADLINE

pytestmark = pytest.mark.full

CELL = """
import os, pathlib, time
folder = pathlib.Path({folder!r})
mine = folder / os.environ["CUDA_VISIBLE_DEVICES"]
with open(mine, "x") as file:  # fails if another run has this GPU
    file.write({name!r})
while not (folder / {name!r}).exists():
    time.sleep(0.02)
mine.unlink()
"""


async def run(folder: Path, name: str) -> None:
    """A notebook that ends when a file of its name exists."""
    code = CELL.format(folder=str(folder), name=name)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    await NotebookClient(notebook, kernel_name="gpu", timeout=int(DEADLINE)).async_execute()


def users_of(folder: Path) -> Iterator[tuple[str, str]]:
    """The GPUs that are in use, each with its run."""
    for path in folder.glob("GPU-*"):
        with contextlib.suppress(FileNotFoundError):  # its run has just ended
            yield path.name, path.read_text()


async def sweep(remote: Remote, folder: Path) -> None:
    """The first runs have all free GPUs; as soon as they end, the others have them."""
    tasks = {name: asyncio.create_task(run(folder, name)) for name in "abcdef"}
    waiting = set(tasks)
    while waiting:
        running: set[str] = set()
        while len(running) < len(remote.free):
            assert not any(task.done() and task.exception() for task in tasks.values())
            users = dict(users_of(folder))
            running = waiting & set(users.values())
            await asyncio.sleep(0.02)
        assert set(users) == set(remote.free)
        waiting -= running
        for name in running:
            (folder / name).touch()
    await asyncio.gather(*tasks.values())


@pytest.mark.usefixtures("nothing_stays")
def test_a_sweep_uses_all_free_gpus_and_no_others(remote: Remote, tmp_path: Path) -> None:
    assert len(remote.free) == 3
    asyncio.run(asyncio.wait_for(sweep(remote, tmp_path), DEADLINE))
