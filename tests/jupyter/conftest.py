"""What tests of front ends share: the way to the work node, and an end for what they leave there.

Coroutines are tests here, too, by pytest-jupyter; here only, as it brings an event loop to every test.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from locked import locked
from pytest_jupyter.jupyter_core import pytest_pycollect_makeitem, pytest_pyfunc_call
from remote import Remote

__all__ = ["locked", "pytest_pycollect_makeitem", "pytest_pyfunc_call"]


@pytest.fixture
def spec(remote: Remote) -> list[dict[str, Any]]:
    """As operations of the hub take kernelspecs."""
    settings = {
        "route": list(remote.hops.route),
        "config": str(remote.hops.ssh_config),
        "transport": remote.transport,
        "python": sys.executable,
    }
    return [{"name": "cpu", "settings": settings}]


@pytest.fixture
def nothing_stays(remote: Remote, spec: list[dict[str, Any]]) -> Iterator[None]:
    """Kernels that a test leaves on purpose end with it."""
    yield
    for kernel in remote.ask("ps", specs=spec):
        remote.ask("stop", kernel=kernel["id"], specs=spec)
    remote.nothing_left()
