"""How each connection of the hub was made stands in its log, and in the story of each kernel that uses it."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from ssh_server import SshServer

from jupyter_gpu_kernel.hub.connections.connect import Connections
from jupyter_gpu_kernel.hub.node.shared_connection import RouteSettings, describe
from jupyter_gpu_kernel.hub.ssh import Attempt
from jupyter_gpu_kernel.hub.ssh.hostkeys import fingerprint


def connected(
    trust_file: Path, route: RouteSettings, caplog: pytest.LogCaptureFixture
) -> tuple[str, list[str]]:
    """What `describe` says of a connection along this route, and the lines of the log."""
    with caplog.at_level(logging.INFO, "jupyter_gpu_kernel"):
        connection = Connections(trust_file).connect(route, Attempt())
    connection.close()
    own = [one for one in caplog.records if one.name.startswith("jupyter_gpu_kernel")]
    return describe(connection, route), [f"{one.levelname} {one.getMessage()}" for one in own]


@pytest.mark.parametrize("transport", ["paramiko", "ssh"])
def test_over_ssh(
    ssh_server: Callable[..., SshServer], tmp_path: Path, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    if transport == "ssh" and shutil.which("ssh") is None:
        pytest.skip("needs the ssh program")
    server = ssh_server("publickey")
    config = tmp_path / "config"
    config.write_text(
        f"Host login\n  HostName 127.0.0.1\n  Port {server.port}\n  User alice\n  IdentityFile {server.key}\n"
        f"  IdentityAgent none\n  UserKnownHostsFile {server.trust_file}\n"
    )
    route = RouteSettings(("login",), (), str(config), transport=transport)
    text, log = connected(server.trust_file, route, caplog)
    speaker = "by paramiko; " if transport == "paramiko" else "by the system's ssh ("
    assert text.startswith(speaker)
    assert text.endswith(f"; host key of login: {fingerprint(server.host_key.asbytes())}")
    assert log == [f"INFO connected to login {text}"]


def test_on_this_machine_and_through_a_command(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    route = RouteSettings(("localhost",), (), None, via=("env A=1",))
    text, log = connected(tmp_path / "trusted", route, caplog)
    assert text == "on this machine; then by env A=1 on localhost"
    assert log == [f"INFO connected to env A=1 on localhost {text}"]
    plain = route._replace(via=())
    assert connected(tmp_path / "trusted", plain, caplog)[0] == "on this machine"


def test_a_failed_attempt_is_not_logged_as_a_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    route = RouteSettings(("localhost",), (), None, via=("false",))
    with pytest.raises(Exception, match="ended with status 1"):
        connected(tmp_path / "trusted", route, caplog)
    assert not [one for one in caplog.records if one.name.startswith("jupyter_gpu_kernel")]
