"""Measures the kernels of one way, in a process of its own: a front end with jupyter_client and nothing else.

    python worker.py NAME

Reads one measure's name per line, and prints a JSON object with its values in seconds for each, or {"error": …}. An
empty object says that this way has no such measure. NAME is the way's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import cpu
from kernel import Kernel
from shared import KERNELSPEC, KERNELSPEC_GPU, SSH_CONFIG, WORK
from websocket import Server

CELLS = 200
CELLS_SECONDS = 4.0
LINES = 100_000
DISPLAY = 50_000_000
SIZES = {"1kb": 1_000, "10kb": 10_000, "100kb": 100_000, "1mb": 1_000_000, "10mb": 10_000_000}
BULK = "for _ in range(100): display({'text/plain': 'x' * 1_000_000}, raw=True)"
IDLE_SECONDS = 1.0
STORM_SECONDS = 4.0
STORM = """import sys
write = type(sys.stdout).write  # IPython's own keeps a copy of everything
while True: write(sys.stdout, 'x' * 1_000_000 + chr(10))"""


class Worker:
    """A kernel that stays for the measures of a running one, and kernels that come and go for the others.

    Each `measure_…` returns values in seconds.
    """

    def __init__(self, way: str) -> None:
        self._way = way
        self._ours = way.startswith(("provisioner", "argv"))
        self._ports = not way.startswith(("provisioner", "sshpyk"))  # these choose their own
        self._kernel: Kernel | None = None
        self._servers: dict[str, Server] = {}

    def close(self) -> None:
        """End all kernels."""
        self._close_kernel()
        for server in self._servers.values():
            server.close()
        self._servers.clear()

    @property
    def kernel(self) -> Kernel:
        """The kernel that stays."""
        if self._kernel is None:
            self._kernel = Kernel(KERNELSPEC, ports=self._ports)
            for _ in range(20):
                self._kernel.cell("pass")
        return self._kernel

    def measure_prepare(self) -> dict[str, float]:
        """Start the kernel that stays."""
        assert self.kernel
        return {}

    def measure_execute(self) -> dict[str, float]:
        """Empty cells, one after the other, and the processor time of all processes for one of them."""
        kernel = self.kernel
        kernel.cell("pass")
        before = cpu.used(os.environ["HOME"])
        trips = _cells(kernel)
        after = cpu.used(os.environ["HOME"])
        parts = {f"cpu_{part}": (after[part] - before[part]) / len(trips) for part in after}
        return {**_percentiles("execute", trips), **parts, "cpu": sum(parts.values())}

    def measure_lines(self) -> dict[str, float]:
        code = f"for _ in range({LINES}): print('x' * 99)"
        return {"lines_100k": self.kernel.cell(code, size=LINES * 100)}

    def measure_display(self) -> dict[str, float]:
        """One letter repeated, which a connection may compress; and random bytes in base64, as an image is shown."""
        self.kernel.cell(
            "import base64, os; from IPython.display import display\n"
            f"image = base64.b64encode(os.urandom({DISPLAY * 3 // 4})).decode()"
        )
        image = self.kernel.cell("display({'image/png': image}, raw=True)", size=DISPLAY)
        return {"display_50mb": self._display(DISPLAY), "display_50mb_image": image}

    def measure_sizes(self) -> dict[str, float]:
        """Displays of one size after the other, and code of 1 MB; the medians of five."""
        values = {
            f"display_{name}": sorted(self._display(size) for _ in range(5))[2]
            for name, size in SIZES.items()
        }
        code = "#" + "x" * 1_000_000
        return {**values, "code_1mb": sorted(self.kernel.cell(code) for _ in range(5))[2]}

    def measure_echo(self) -> dict[str, float]:
        """The control channel, while nothing else happens and while a cell displays 100 MB."""
        connection_file = self.kernel.connection_file
        words = [sys.executable, str(Path(__file__).with_name("echo.py")), connection_file]
        self.kernel.cell("from IPython.display import display")
        with subprocess.Popen(words, stdin=-1, stdout=-1, text=True) as process:
            assert process.stdin and process.stdout
            time.sleep(IDLE_SECONDS)  # it starts meanwhile
            process.stdin.write("idle\n")
            process.stdin.flush()
            time.sleep(IDLE_SECONDS)
            process.stdin.write("bulk\n")
            process.stdin.flush()
            self.kernel.cell(BULK, size=100_000_000)
            process.stdin.close()
            _, idle, bulk = json.loads(process.stdout.read())
        return {**_percentiles("echo_idle", idle), **_percentiles("echo_bulk", bulk)}

    def measure_websocket(self) -> dict[str, float]:
        """Empty cells through a jupyter_server; the bare kernel's also beside our server extension."""
        values = _percentiles("websocket", _cells(self._server(extension=self._ours)))
        if self._way == "bare":
            values |= _percentiles("websocket_extension", _cells(self._server(extension=True)))
        return values

    def measure_start(self) -> dict[str, float]:
        """A kernel beside the one that runs already, so that the connection is there."""
        assert self.kernel
        return self._start(KERNELSPEC, "start")

    def measure_gpu(self) -> dict[str, float]:
        """The same with a GPU, on a node where three simulated ones are free; for others a plain start."""
        assert self.kernel
        return self._start(KERNELSPEC_GPU if self._ours else KERNELSPEC, "start_gpu")

    def measure_cold(self) -> dict[str, float]:
        """A start without a hub or a shared connection, on a node that has the agent; and `ssh … true`."""
        if self._way == "sshpyk":  # its connection is ssh's, and stays
            return {}
        self.close()
        config = os.environ.get(SSH_CONFIG)
        if not config:
            return self._start(KERNELSPEC, "cold")
        began = time.perf_counter()
        subprocess.run(["ssh", "-F", config, WORK, "true"], check=True, stdin=subprocess.DEVNULL)
        login = time.perf_counter() - began
        if self._ours:
            _end_hub()
        return {**self._start(KERNELSPEC, "cold"), "ssh_true": login}

    def measure_restart(self) -> dict[str, float]:
        return {"restart": self.kernel.restart()}

    def measure_storm(self) -> dict[str, float]:
        """An interrupt of a cell that prints 1 MB lines as fast as it can, and the memory of its process."""
        kernel = Kernel(KERNELSPEC, ports=self._ports)
        try:
            before = _memory(kernel)
            ended = kernel.interrupt(STORM, STORM_SECONDS)
            return {"storm_interrupt": ended, "storm_memory": _memory(kernel) - before}
        finally:
            kernel.close()

    def _start(self, kernelspec: str, name: str) -> dict[str, float]:
        kernel = Kernel(kernelspec, ports=self._ports)
        kernel.close()
        return {f"{name}_{key}": seconds for key, seconds in kernel.seconds.items()}

    def _display(self, size: int) -> float:
        code = f"from IPython.display import display; display({{'text/plain': 'x' * {size}}}, raw=True)"
        return self.kernel.cell(code, size=size)

    def _server(self, *, extension: bool) -> Server:
        key = f"extension {extension}"
        if key not in self._servers:
            self._servers[key] = Server(KERNELSPEC, extension=extension, ports=self._ports)
        return self._servers[key]

    def _close_kernel(self) -> None:
        kernel, self._kernel = self._kernel, None
        if kernel:
            kernel.close()


def _cells(kernel: Kernel | Server) -> list[float]:
    """Times of empty cells: 200, or on a long path as many as fit into some seconds."""
    trips: list[float] = []
    while len(trips) < CELLS and sum(trips) < CELLS_SECONDS:
        trips.append(kernel.cell("pass"))
    return trips


def _percentiles(name: str, trips: list[float]) -> dict[str, float]:
    trips = sorted(trips)
    return {f"{name}_p50": trips[len(trips) // 2], f"{name}_p99": trips[int(len(trips) * 0.99)]}


def _end_hub() -> None:
    """Kill the hub that this process's environment leads to, and wait until it has ended."""
    home = f"HOME={os.environ['HOME']}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # another user's, or gone
            continue
        if b"jupyter_gpu_kernel.hub" in words and home in environment:
            os.kill(int(entry.name), signal.SIGKILL)  # a hub ignores SIGTERM
            deadline = time.monotonic() + 10
            while _running(entry):
                if time.monotonic() > deadline:
                    raise RuntimeError("the hub has not ended in 10 s")
                time.sleep(0.01)


def _running(process: Path) -> bool:
    """Whether the process has not ended; a zombie has no command line."""
    try:
        return bool((process / "cmdline").read_bytes())
    except OSError:
        return False


def _memory(kernel: Kernel) -> float:
    """The most memory that the kernel's process has had, in MiB."""
    status = kernel.output("print(open('/proc/self/status').read())")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main(way: str) -> None:
    """Answer until stdin ends. What libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = Worker(way)
    for line in sys.stdin:
        answer: dict[str, Any]
        try:
            answer = getattr(worker, f"measure_{line.strip()}")()
        except Exception as error:  # this way starts anew, and the others are measured all the same
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
    worker.close()


if __name__ == "__main__":
    main(sys.argv[1])
