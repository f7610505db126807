"""One kernel, as a front end uses it through jupyter_client: start, cells, restart, shutdown."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import zmq
from jupyter_client import KernelManager
from ports import choose

TIMEOUT = 30.0
_ASK_AGAIN = 0.5  # as jupyter_server does
_ASK_IOPUB = 0.02


def chosen_ports() -> dict[str, Any]:
    """Settings of a KernelManager that name its ports."""
    names = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
    return {"cache_ports": False, **dict(zip(names, choose(5), strict=True))}


class Kernel:
    """A running kernel. `seconds` has how long its start took to kernel_info's reply and to the first cell's."""

    def __init__(self, name: str, *, ports: bool) -> None:
        """`ports`: whether the way's process binds the ports that its connection file names."""
        options = chosen_ports() if ports else {}
        began = time.perf_counter()
        self._manager = KernelManager(kernel_name=name, **options)
        self._manager.start_kernel()
        self._client = self._manager.blocking_client()
        self._client.start_channels(hb=False, stdin=False)
        self._sockets = {
            self._client.shell_channel.socket: "shell",
            self._client.iopub_channel.socket: "iopub",
        }
        self._poller = zmq.Poller()
        for socket in self._sockets:
            self._poller.register(socket, zmq.POLLIN)
        try:
            self._wait_until_ready()
            ready = time.perf_counter() - began
            self.cell("1")
            self.seconds = {"ready": ready, "first_cell": time.perf_counter() - began}
        except BaseException:
            self.close()
            raise

    @property
    def connection_file(self) -> str:
        return str(self._manager.connection_file)

    def restart(self) -> float:
        """Seconds from the request to the next cell's reply."""
        began = time.perf_counter()
        self._manager.restart_kernel()
        self._wait_until_ready()
        self.cell("1")
        return time.perf_counter() - began

    def close(self) -> float:
        """Seconds that the shutdown takes."""
        began = time.perf_counter()
        self._client.stop_channels()
        self._manager.shutdown_kernel()
        self._manager.cleanup_resources()
        return time.perf_counter() - began

    def cell(self, code: str, size: int = 0) -> float:
        """Seconds until the cell's reply and idle are both there. Its output must have at least `size` characters."""
        got = 0

        def count(content: dict[str, Any]) -> None:
            nonlocal got
            got += len(content.get("text", "")) + sum(map(len, content.get("data", {}).values()))

        began = time.perf_counter()
        reply = self._exchange(self._client.execute(code, allow_stdin=False), count)
        taken = time.perf_counter() - began
        if reply["status"] != "ok":
            raise RuntimeError(f"{code}: {reply}")
        if got < size:
            raise RuntimeError(f"{size - got} of {size} characters are missing")
        return taken

    def output(self, code: str) -> str:
        """What the cell prints."""
        texts: list[str] = []
        self._exchange(
            self._client.execute(code, allow_stdin=False),
            lambda content: texts.append(content.get("text", "")),
        )
        return "".join(texts)

    def interrupt(self, code: str, seconds: float) -> float:
        """Run a cell that does not end by itself, and interrupt it after some seconds, in which its output is read.

        Return the seconds from the interrupt to the cell's reply and idle state.
        """
        request = self._client.execute(code, allow_stdin=False)
        began = time.perf_counter()
        times: dict[str, float] = {}
        interrupted = 0.0
        deadline = time.monotonic() + TIMEOUT
        while not {"reply", "idle"} <= times.keys():
            if not interrupted and time.perf_counter() - began > seconds:
                self._manager.interrupt_kernel()
                interrupted = time.perf_counter()
            for channel, message in self._receive(deadline - time.monotonic()):
                if message["parent_header"].get("msg_id") == request:
                    state = message["content"].get("execution_state")
                    kind = "reply" if channel == "shell" else "idle" if state == "idle" else "output"
                    times[kind] = time.perf_counter() - interrupted
        return max(times["reply"], times["idle"])

    def _exchange(self, request: str, output: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Until the reply and the idle state of a request are there. Return the reply's content."""
        reply: dict[str, Any] | None = None
        idle = False
        deadline = time.monotonic() + TIMEOUT
        while reply is None or not idle:
            for channel, message in self._receive(deadline - time.monotonic()):
                if message["parent_header"].get("msg_id") != request:
                    continue
                if channel == "shell":
                    reply = message["content"]
                elif message["msg_type"] == "status":
                    idle = idle or message["content"]["execution_state"] == "idle"
                else:
                    output(message["content"])
        return reply

    def _wait_until_ready(self) -> None:
        """Until both channels have answered: requests are repeated, as both may connect after the kernel has begun."""
        deadline = time.monotonic() + TIMEOUT
        received: set[str] = set()
        requests: set[str] = set()
        while received != {"shell", "iopub"}:
            requests.add(self._client.kernel_info())
            ask_again = time.monotonic() + (_ASK_AGAIN if "shell" not in received else _ASK_IOPUB)
            if not self._manager.is_alive():
                raise RuntimeError("the kernel, or what starts it, has ended")
            while received != {"shell", "iopub"} and time.monotonic() < ask_again:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the kernel has not answered in {TIMEOUT:g} s")
                for channel, message in self._receive(ask_again - time.monotonic(), needed=False):
                    if message["parent_header"].get("msg_id") not in requests:
                        continue  # of the kernel before a restart
                    if channel == "shell" and "shell" not in received:
                        ask_again = min(ask_again, time.monotonic() + _ASK_IOPUB)
                    received.add(channel)

    def _receive(self, timeout: float, *, needed: bool = True) -> list[tuple[str, dict[str, Any]]]:
        ready = dict(self._poller.poll(max(0.0, timeout) * 1000))
        if needed and not ready:
            raise RuntimeError(f"no answer in {TIMEOUT:g} s")
        messages = []
        for socket in ready:
            _, message = self._client.session.recv(socket)
            if message is not None:
                messages.append((self._sockets[socket], message))
        return messages
