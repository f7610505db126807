"""What processes load that there are many of, or that wait for it: the modules, in a fresh Python."""

from __future__ import annotations

import subprocess
import sys

import pytest


def loaded_by(code: str) -> set[str]:
    """The modules that this code leaves in `sys.modules`."""
    words = [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"]
    return set(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("module", ["jupyter_gpu_kernel.server.extension", "jupyter_gpu_kernel.provisioner"])
def test_a_jupyter_server_loads_no_ssh(module: str) -> None:
    """At its start; paramiko takes 50 ms. To read the user's ssh configuration takes no paramiko."""
    loaded = loaded_by(f"import {module}")
    assert module in loaded
    assert not loaded & {"paramiko", "cryptography", "jupyter_gpu_kernel.hub.ssh.route_connection"}


def test_a_launcher_loads_little() -> None:
    """There is one per kernel that a front end started by argv: no event loop, no application, no other verb."""
    loaded = loaded_by(
        "from jupyter_gpu_kernel.cli import main\nmain(['launch', '/nowhere/kernel.json', '-f', '/nowhere/c'])"
    )
    assert "jupyter_gpu_kernel.launcher" in loaded
    # Old versions of jupyter_core load asyncio.
    large = {"asyncio", "traitlets", "zmq", "paramiko", "jupyter_client", "jupyter_gpu_kernel.cli.verbs"}
    library = loaded_by("import jupyter_core.paths")
    assert not loaded & (large - library)
    assert len(loaded - library) < 120


def test_the_hub_loads_no_package_that_only_paramikos_own_parser_uses() -> None:
    """It takes an eighth of the hub's start."""
    loaded = loaded_by(
        "import sys; sys.argv[1:] = ['serve', '--version']\n"
        "try: from jupyter_gpu_kernel.hub.__main__ import main; main()\n"
        "except SystemExit: pass"
    )
    assert {"paramiko", "jupyter_gpu_kernel.hub.connections.connect", "invoke"} <= loaded
    assert not any(name.startswith("invoke.") for name in loaded)
