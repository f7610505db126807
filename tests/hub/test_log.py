"""The hub's log: bounded, inert, and readable although one node floods it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from runtimes import RUNTIME

from jupyter_gpu_kernel.hub import app
from jupyter_gpu_kernel.hub.app import BURST, MAX_SIZE, write_log_to


@pytest.fixture
def log(tmp_path: Path) -> Iterator[logging.Logger]:
    """One that writes to `log` in tmp_path; everything is as before at the end."""
    root, hook = logging.getLogger(), threading.excepthook
    handlers = list(root.handlers)
    log = logging.Logger("hub", logging.INFO)
    write_log_to(tmp_path / "log", log, RUNTIME.monotonic)
    yield log
    for handler in log.handlers:
        handler.close()
    root.handlers[:], threading.excepthook = handlers, hook


def written(folder: Path) -> str:
    return "".join(path.read_text("utf-8") for path in sorted(folder.iterdir(), reverse=True))


def test_it_has_a_size(log: logging.Logger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "BURST", 10**6)
    for number in range(3000):
        log.info("node %s: %s", number, "x" * 1500)
    assert MAX_SIZE < sum(path.stat().st_size for path in tmp_path.iterdir()) < 2.1 * MAX_SIZE
    assert "node 2999: xxx" in written(tmp_path)


def test_one_node_has_so_many_lines_and_others_theirs(
    log: logging.Logger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1000):
        log.warning("%s: link down: %s", "gpu1", number)
    log.warning("%s: link down: %s", "gpu2", "its own")
    assert written(tmp_path).count("gpu1: link down") == BURST and "gpu2: link down: its own" in written(
        tmp_path
    )
    monkeypatch.setattr(app, "PERIOD", -1.0)
    log.warning("%s: link down: %s", "gpu1", "later")
    assert "gpu1: link down: later (980 similar messages suppressed)" in written(tmp_path)


def test_kinds_without_end_are_one_kind(log: logging.Logger, tmp_path: Path) -> None:
    for number in range(app._MAX_KINDS + 500):
        log.warning("a front end said %s", number)
    assert written(tmp_path).count("a front end said") == app._MAX_KINDS + BURST


def test_kinds_are_forgotten_after_their_period() -> None:
    now = 0.0
    limit = app.RateLimit(lambda: now)

    def passes(first: str) -> bool:
        return limit.filter(logging.LogRecord("hub", logging.INFO, "", 0, "kernel %s", (first,), None))

    for number in range(app._MAX_KINDS + 100):
        passes(f"of yesterday {number}")
    assert not passes("new")
    now = app.PERIOD + 1
    assert passes("new") and len(limit._kinds) < app._MAX_KINDS


def test_what_a_node_says_is_inert(log: logging.Logger, tmp_path: Path) -> None:
    log.warning("%s: %s", "gpu1", "a\x1b[2J\n2026-01-01 00:00:00 INFO forged" + "x" * 10**6)
    try:
        raise ValueError("b\x1b[2J\nforged")
    except ValueError:
        log.exception("it failed")
    lines = written(tmp_path).splitlines()
    assert all(line.isprintable() and len(line) < 3000 for line in lines)
    assert not [line for line in lines if line.startswith(("2026-01-01 00:00:00", "forged"))]
    assert "| ValueError: b?[2J" in lines and "| forged" in lines


def test_faults_elsewhere_come_here_and_not_to_stderr(
    log: logging.Logger, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The hub's stderr is a file, too, and one that is never rotated."""

    def fails() -> None:
        raise RuntimeError("a fault")

    async def main() -> None:
        asyncio.get_running_loop().call_soon(fails)
        await asyncio.sleep(0)

    asyncio.run(main())
    for handler in log.handlers:
        handler.close()
    write_log_to(
        tmp_path / "log", log, RUNTIME.monotonic
    )  # once more: older pytests set a hook of their own when a test begins
    thread = threading.Thread(target=fails, name="client-7")
    thread.start()
    thread.join()
    assert written(tmp_path).count("RuntimeError: a fault") == 2 and "client-7" in written(tmp_path)
    assert capfd.readouterr().err == ""
