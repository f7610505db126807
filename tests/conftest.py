"""Fixtures every test may use; each lives in a file of its own."""

from __future__ import annotations

import signal

import pytest

# A shell that starts the tests in the background has SIGINT ignored, and so have all processes that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONGEST = (
    "test_gate", "test_leaving", "test_demo_lab", "test_cuts", "test_launcher", "test_succession", "test_browser",
    "test_manager", "test_return", "test_ends", "test_guard_ends", "test_offline_notice", "test_demo_run",
)  # fmt: skip
"""The files that take longest, the slowest first: about half of the time of all tests (`pytest --durations 40`)."""

pytest_plugins = ["environments", "sshd", "house", "remote"]


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A test's name is in the environment of each process that it starts: what does not fit there gets a short one."""
    return f"{argname}-{len(val)}" if isinstance(val, (str, bytes)) and len(val) > 1000 else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest files first: one that begins last leaves the other processes without work."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))
