"""`jupyter gpu-kernel vscode hub`: what the extension for VS Code needs to connect to the hub."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from remote import Remote

from jupyter_gpu_kernel.client import HubClient
from jupyter_gpu_kernel.hub.paths import hub_address, hub_key

pytestmark = pytest.mark.usefixtures("nothing_stays")


def test_the_extension_learns_where_the_hub_listens(remote: Remote) -> None:
    place = json.loads(remote.program("vscode", "hub").stdout)
    assert place["protocol"] == 1
    assert place["address"] == hub_address()
    assert Path(place["key"]).read_bytes() == hub_key()
    assert Path(place["sign_ins"]).stat().st_mode & 0o777 == 0o700
    with HubClient(start=False) as client:
        assert client.call("hello")["protocol"] == 1
