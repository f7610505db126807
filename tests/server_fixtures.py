"""pytest-jupyter's server, with the folders of the remote kernels' kernelspecs: `from server_fixtures import *`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pytest_jupyter.jupyter_server import *  # noqa: F403 (its fixtures)
from remote import Remote

# What pytest-jupyter would make anew for each test: one hub serves one data folder.


@pytest.fixture
def jp_data_dir(remote: Remote) -> Path:
    return remote.data


@pytest.fixture
def jp_runtime_dir(remote: Remote) -> Path:
    return remote.runtime


@pytest.fixture
def jp_nbconvert_templates() -> None:
    """None are needed."""


@pytest.fixture
def echo_kernel_spec() -> None:
    """Nor is this."""


@pytest.fixture
def jp_server_config() -> dict[str, Any]:
    return {"ServerApp": {"jpserver_extensions": {"jupyter_gpu_kernel": True}}}
