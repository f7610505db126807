"""Many kernels in one hub, with the real `attach` but without ipykernel: where does the hub bend?

    python benchmarks/simulated.py [--kernels 1,50,500] [--cells 100] [--json]

The hub, its clients, the front ends' sockets, the agent and the wire are real; the node is this machine, and
played_keepers.py answers for all kernels. So all figures but the rates of cells are those of a hub with as many real
kernels. Nothing of the user's is touched: the hub has folders of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.session import Session
from processes import Cost, children, cost

KEEPERS = Path(__file__).with_name("played_keepers.py")
IDLE = 10.0
WITHIN = 120.0
FLOOD = "print 20000"


class Front:
    """A front end's shell and iopub, with as little of its own as possible."""

    def __init__(self, context: zmq.Context[Any], connection: dict[str, Any]) -> None:
        self._session = Session(key=str(connection["key"]).encode())
        self._session.digest_history_size = 0
        self.shell, self.iopub = context.socket(zmq.DEALER), context.socket(zmq.SUB)
        self.shell.linger = self.iopub.linger = 0
        self.iopub.rcvhwm = 0
        self.iopub.subscribe(b"")
        for name in ("shell", "iopub"):
            getattr(self, name).connect(f"tcp://127.0.0.1:{connection[name + '_port']}")

    def send(self, code: str) -> str:
        """Run a cell; return its msg_id."""
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        return str(self._session.send(self.shell, "execute_request", content)["header"]["msg_id"])

    def ask(self) -> str:
        """Ask for kernel_info, which also shows whether iopub is connected."""
        return str(self._session.send(self.shell, "kernel_info_request", {})["header"]["msg_id"])

    def finish(self, *requests: str, within: float = WITHIN) -> bool:
        """Return once one request's reply and one's idle are there; False after so many seconds without a message."""
        open_ends = {self.shell: "_reply", self.iopub: "idle"}
        poller = zmq.Poller()
        for socket in open_ends:
            poller.register(socket, zmq.POLLIN)
        while open_ends:
            ready = dict(poller.poll(within * 1000))
            if not ready:
                return False
            for socket in ready:
                _, parts = self._session.feed_identities(socket.recv_multipart())
                message = self._session.deserialize(parts, content=True)
                ends = message["msg_type"].endswith("_reply") or (
                    message["content"].get("execution_state") == "idle"
                )
                if ends and message["parent_header"].get("msg_id") in requests:
                    open_ends.pop(socket, None)
                    poller.unregister(socket)
        return True

    def run(self, code: str = "pass") -> float:
        """Return the seconds that a cell takes."""
        began = time.perf_counter()
        if not self.finish(self.send(code)):
            raise SystemExit(f"a cell got no answer within {WITHIN} s")
        return time.perf_counter() - began


class Kit:
    """A hub of its own, played keepers, and front ends."""

    def __init__(self, folder: Path, exits: contextlib.ExitStack, count: int) -> None:
        base = folder / f"jupyter-gpu-kernel-{os.getuid()}"
        base.mkdir(mode=0o700)
        environment = {
            "JUPYTER_DATA_DIR": str(folder / "data"),
            "XDG_RUNTIME_DIR": str(folder),
            "JUPYTER_GPU_KERNEL_BASE": str(folder),
        }
        os.environ.update(environment)
        command = [sys.executable, str(KEEPERS), str(base), str(count)]
        self.keepers = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        exits.callback(self.keepers.wait)
        assert self.keepers.stdin is not None and self.keepers.stdout is not None
        exits.callback(self.keepers.stdin.close)
        self.keepers.stdout.readline()
        from jupyter_gpu_kernel.client import HubClient

        self._new_client = HubClient
        self.client = HubClient()
        exits.callback(self.client.call, "shutdown")
        self.hub = int(self.client.call("hello")["pid"])
        self.context: zmq.Context[Any] = zmq.Context(4)
        self.context.max_sockets = 4 * count + 100
        exits.callback(self.context.destroy, linger=0)
        self.fronts: list[Front] = []

    def start(self, number: int) -> dict[str, Any]:
        """Start the hub's side of one kernel, as a provisioner does; return its connection."""
        client = self._new_client(start=False)
        connection = {"transport": "tcp", "ip": "127.0.0.1", "key": os.urandom(16).hex()}
        answer = client.call(
            "start", name="played", settings=SETTINGS, connection=connection, kernel=f"played-{number}",
            front_end_kind="other", timeout=WITHIN,
        )  # fmt: skip
        return dict(answer["connection"])

    def start_all(self, first: int, count: int) -> float:
        """Start as many kernels at once, and connect front ends; return the seconds until all answer."""
        began = time.perf_counter()
        with ThreadPoolExecutor(64) as pool:
            connections = list(pool.map(self.start, range(first, count)))
        for connection in connections:
            self.fronts.append(Front(self.context, connection))
        self.all_answer()
        return time.perf_counter() - began

    def all_answer(self) -> None:
        """Return once each kernel has answered. A front end whose iopub was not connected yet asks again; an answer to
        an earlier request counts as well, since on a busy machine each may take longer than the pause."""
        deadline = time.monotonic() + WITHIN
        for number, (front, request) in enumerate([(front, front.ask()) for front in self.fronts]):
            asked = [request]
            while not front.finish(*asked, within=1.0):
                if time.monotonic() > deadline:
                    raise SystemExit(
                        f"kernel {number} has answered none of {len(asked)} requests in {WITHIN} s"
                    )
                asked.append(front.ask())

    def attach(self) -> int:
        """The agent's end of the link."""
        return next(pid for pid in children(self.hub) if b"attach" in _command(pid))


def measure(kit: Kit, before: Cost, started: float, cells: int) -> dict[str, Any]:
    """Return what as many kernels cost, and how they answer."""
    count = len(kit.fronts)
    attach = kit.attach()
    held = cost(kit.hub)
    began = cost(kit.hub), cost(attach)
    time.sleep(IDLE)
    idle = [
        100 * (now.cpu - then.cpu) / IDLE
        for now, then in zip((cost(kit.hub), cost(attach)), began, strict=True)
    ]
    alone, used = timed(kit, attach, lambda: [kit.fronts[0].run() for _ in range(cells)])
    every, _ = timed(kit, attach, lambda: [_run_each(kit.fronts) for _ in range(max(1, 500 // count))])
    result = {
        "kernels": count,
        "start_s": started,
        "hub_mib_each": (held.mib - before.mib) / count,
        "hub_threads_each": (held.threads - before.threads) / count,
        "hub_files_each": (held.files - before.files) / count,
        "attach_mib": cost(attach).mib,
        "idle_cpu_percent_hub": idle[0],
        "idle_cpu_percent_attach": idle[1],
        "cell_p50_ms": 1e3 * statistics.median(alone),
        "cell_p99_ms": 1e3 * sorted(alone)[int(0.99 * len(alone))],
        "cell_cpu_ms_hub": 1e3 * used[0] / cells,
        "cell_cpu_ms_attach": 1e3 * used[1] / cells,
        "all_at_once_cells_per_s": count / statistics.median(every),
    }
    if count > 1:
        result["cell_p50_ms_beside_flood"] = 1e3 * beside_flood(kit)
        result["ps_s"] = _seconds(lambda: kit.client.call("ps", specs=SPECS))
    os.kill(attach, signal.SIGKILL)
    result["after_drop_s"] = _seconds(kit.all_answer)
    return result


SETTINGS = {"route": ["localhost"], "identity": [], "config": None, "python": sys.executable, "gpus": 0}
SPECS = [{"name": "played", "settings": SETTINGS}]


def timed(kit: Kit, attach: int, work: Any) -> tuple[list[float], list[float]]:
    """Return the work's result, and the CPU seconds that hub and attach used for it."""
    then = cost(kit.hub).cpu, cost(attach).cpu
    result = work()
    return result, [cost(kit.hub).cpu - then[0], cost(attach).cpu - then[1]]


def beside_flood(kit: Kit) -> float:
    """Return the median seconds of a cell while another kernel prints without a pause."""
    flood, other = kit.fronts[0], kit.fronts[1]
    request = flood.send(FLOOD)
    took = [other.run() for _ in range(20)]
    flood.finish(request)
    return statistics.median(took)


def _run_each(fronts: list[Front]) -> float:
    return _seconds(
        lambda: [front.finish(one) for front, one in [(front, front.send("pass")) for front in fronts]]
    )


def _seconds(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@contextlib.contextmanager
def kit(count: int) -> Iterator[Kit]:
    """Yield a kit for as many kernels, and leave nothing behind."""
    with tempfile.TemporaryDirectory(prefix="jgk", dir="/tmp") as name, contextlib.ExitStack() as exits:
        yield Kit(Path(name), exits, count)


def main() -> None:
    """Measure each count, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernels", default="1,50,500", help="how many, in turn")
    parser.add_argument("--cells", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with kit(max(map(int, options.kernels.split(",")))) as one:
        one.start_all(0, 1)  # the connection and the agent do not count
        one.fronts[0].run()
        before = cost(one.hub)
        for count in map(int, options.kernels.split(",")):
            started = one.start_all(len(one.fronts), count)
            rows.append(measure(one, before, started, options.cells))
            print(json.dumps(rows[-1]), file=sys.stderr)
    if options.json:
        return print(json.dumps(rows))
    for key in rows[-1]:
        print(f"{key:28}" + "".join(f"{row.get(key, float('nan')):12.3f}" for row in rows))


if __name__ == "__main__":
    main()
