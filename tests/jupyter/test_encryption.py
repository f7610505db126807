"""What another user of this machine can hear: iopub over TCP loopback, unless jupyter_client encrypts it."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
import zmq
from cells import connect, run, started
from jupyter_client.manager import KernelManager
from remote import Remote
from waiting import DEADLINE
from zmq.utils.monitor import recv_monitor_message

pytestmark = [
    pytest.mark.full,
    pytest.mark.usefixtures("remote"),
    pytest.mark.skipif(
        not hasattr(KernelManager, "transport_encryption"), reason="jupyter_client 8.9 encrypts"
    ),
]
SPECS = pytest.mark.parametrize("spec", ["cpu", "cpu-argv"])


class Eavesdropper:
    """It knows the address and no key, and subscribes to iopub."""

    def __init__(self, manager: KernelManager) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.subscribe(b"")
        self._events = self._socket.get_monitor_socket()
        self._socket.connect(manager._make_url("iopub"))

    def is_let_in(self) -> bool:
        """Whether the handshake with the kernel's side succeeded."""
        ends = {
            zmq.EVENT_HANDSHAKE_SUCCEEDED: True,
            zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: False,
            zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: False,
            zmq.EVENT_HANDSHAKE_FAILED_AUTH: False,
        }
        while self._events.poll(DEADLINE * 1000):
            event = recv_monitor_message(self._events)["event"]
            if event in ends:
                return ends[event]
        raise AssertionError("nobody answered")

    def hears(self, text: str) -> bool:
        """Waits for a message with this text."""
        while self._socket.poll(DEADLINE * 1000):
            if text.encode() in b"".join(self._socket.recv_multipart()):
                return True
        return False

    def close(self) -> None:
        self._socket.disable_monitor()
        self._context.destroy(linger=0)


def test_without_encryption_anybody_here_can_subscribe_to_the_output(remote: Remote) -> None:
    """The documentation says so; and it shows that the eavesdropper of these tests can hear."""
    with started(remote, "cpu") as (manager, client):
        other = Eavesdropper(manager)
        try:
            assert other.is_let_in()
            printed = uuid.uuid4().hex
            run(client, f"print({printed!r})")
            assert other.hears(printed)
        finally:
            other.close()


@SPECS
@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_required_encryption_is_there(remote: Remote, spec: str, transport: str, tmp_path: Path) -> None:
    more = {"ip": str(remote.folder / "run" / uuid.uuid4().hex[:8])} if transport == "ipc" else {}
    with started(remote, spec, transport=transport, transport_encryption="required", **more) as (
        manager,
        client,
    ):
        keys = {"curve_publickey", "curve_secretkey"}
        before = json.loads(Path(manager.connection_file).read_text())
        assert keys <= before.keys()
        assert run(client, "print(6 * 7)").text == "42\n"
        other = Eavesdropper(manager)
        try:
            assert not other.is_let_in()
        finally:
            other.close()
        manager.restart_kernel()
        client.wait_for_ready(timeout=DEADLINE)
        assert run(client, "print(6 * 7)").text == "42\n"
        after = json.loads(Path(manager.connection_file).read_text())
        assert {key: after[key] for key in keys} == {key: before[key] for key in keys}


def test_encryption_where_it_is_supported(remote: Remote) -> None:
    """The option's other value. A second manager that has the connection file alone is let in, too."""
    with started(remote, "cpu", transport_encryption="auto") as (manager, client):
        assert manager.curve_publickey is not None
        assert run(client, "print(6 * 7)").text == "42\n"
        second = KernelManager(connection_file=manager.connection_file)
        second.load_connection_file()
        other = connect(second)
        try:
            assert run(other, "print(6 * 7)").text == "42\n"
        finally:
            other.stop_channels()
