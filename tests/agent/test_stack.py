"""`check --gpu` on the node: real processes, with a practice nvidia-smi, and modules in place of the frameworks which
crash, hang, print and fork as broken ones do."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest
from keepers import Place
from runtimes import RUNTIME
from waiting import eventually

from jupyter_gpu_kernel.agent import procfs
from jupyter_gpu_kernel.agent.exit.descendants import ROOT
from jupyter_gpu_kernel.agent.gpus.devices import driver
from jupyter_gpu_kernel.agent.gpus.sharing.lease import LeaseReader, LeaseTaker
from jupyter_gpu_kernel.agent.mux.keepers import Refused
from jupyter_gpu_kernel.agent.process_control import ProcessControl
from jupyter_gpu_kernel.agent.stack import framework, supervision
from jupyter_gpu_kernel.wire.frames import Kind, json_frame

pytestmark = pytest.mark.full

PROGRAMS = Path(__file__).parents[1] / "programs"
UUID = f"GPU-{RUNTIME.new_id()}"
COMPUTES = """
import os
__version__ = "2.6.0+cu124"
class version: cuda, hip = "12.4", None
class Ones:
    def __init__(self, *shape, device): self.total = shape[0] * shape[1] * shape[0]
    def __matmul__(self, other): return self
    def sum(self): return self.total
def ones(*shape, device): return Ones(*shape, device=device)
"""


class Node:
    """A node with one GPU; `check` is the request of the hub. `write` makes a module of the user's."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place = place
        self.folder = folder
        self.state = folder / "gpus.json"
        self.modules = folder / "modules"
        self.modules.mkdir()
        self.gpu()

    def gpu(self, **words: Any) -> None:
        self.state.write_text(json.dumps({"gpus": [dict(words, uuid=UUID)]}))

    def write(self, name: str, text: str) -> None:
        (self.modules / f"{name}.py").write_text(text)

    def request(self, part: str, limit: float = 60, **settings: Any) -> Dict[str, Any]:
        path = os.pathsep.join([str(self.modules), os.environ["PYTHONPATH"]])
        env = {"PYTHONPATH": path, "IPYTHONDIR": str(self.folder / "ipython")}
        settings = {"python": sys.executable, "gpus": 1, "cwd": str(self.folder), "env": env, **settings}
        return {"do": "stack", "part": part, "limit": limit, "settings": settings}

    def check(self, part: str, **more: Any) -> Dict[str, Any]:
        return self.place.handlers.handle(self.request(part, **more))

    def processes(self) -> List[int]:
        """Those of checks in this folder."""
        own = [pid for pid in procfs.pids() if pid != os.getpid()]
        return [
            pid for pid in own if procfs.environment(pid).get(ROOT) == str(self.place.path) and _runs(pid)
        ]

    def nothing_stays(self) -> None:
        eventually(lambda: not self.processes(), "the end of all processes")
        assert not LeaseReader(RUNTIME).read([UUID])
        assert [path.name for path in self.place.path.rglob("*") if path.is_file()] == []


def _runs(pid: int) -> bool:
    return procfs.start_ticks(pid) > 0


@pytest.fixture
def node(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setenv("PATH", os.pathsep.join([str(PROGRAMS), os.environ["PATH"]]))
    monkeypatch.setenv("FAKE_NVIDIA_STATE", str(tmp_path / "gpus.json"))
    node = Node(place, tmp_path)
    yield node
    node.nothing_stays()


def test_the_node(node: Node) -> None:
    for name in framework.FRAMEWORKS:
        node.write(name, "raise SystemExit('imported')")
    answer = node.check("node")
    assert (answer["driver"], answer["cuda"]) == ("550.54.15", "12.4")
    assert answer["gpus"] == ["NVIDIA A100-SXM4-80GB"]
    assert answer["installed"] == ["torch", "tensorflow", "jax", "cupy"]


def test_a_node_without_a_driver(node: Node) -> None:
    node.state.write_text(json.dumps({"mode": "mismatch"}))
    answer = node.check("node")
    assert answer["problem"]["code"] == "driver" and "driver" not in answer and answer["status"] == 0
    assert "mismatch" in node.check("torch")["no_gpu"]


def test_the_gpu_is_leased_while_it_is_used(node: Node) -> None:
    held, go = node.folder / "held", node.folder / "go"
    lines = [
        "import pathlib, sys, time",
        f"pathlib.Path({str(held)!r}).touch()",
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)",
        "print(sys.path[0], os.environ['CUDA_VISIBLE_DEVICES'], sep='|')",
    ]
    node.write("torch", COMPUTES + "\n".join(lines))
    answers: List[Dict[str, Any]] = []
    thread = threading.Thread(target=lambda: answers.append(node.check("torch")))
    thread.start()
    eventually(held.exists, "the import")
    holder = LeaseReader(RUNTIME).read([UUID])[UUID]
    assert str(holder) == "leased for a moment by your “check --gpu”"
    assert node.place.handlers.handle({"do": "leftovers"})["leftovers"] == []
    go.touch()
    thread.join()
    (answer,) = answers
    assert answer["gpu"] == UUID and answer["right"] and answer["status"] == 0
    assert (answer["version"], answer["built_for"]) == ("2.6.0+cu124", "CUDA 12.4")
    assert answer["output"] == f"|{UUID}\n", "modules in the working directory are found as in a kernel"


def test_a_wrong_product_is_noticed(node: Node) -> None:
    node.write("torch", COMPUTES + "Ones.sum = lambda self: self.total - 1")
    assert node.check("torch")["right"] is False


def test_a_gpu_that_somebody_uses_is_not_touched(node: Node) -> None:
    node.gpu(processes=[{"pid": 1, "memory": 4000}])
    node.write("torch", COMPUTES + "print(repr(os.environ['CUDA_VISIBLE_DEVICES']))")
    answer = node.check("torch")
    assert (answer["gpu"], answer["no_gpu"]) == ("", "no GPU is free")
    assert answer["version"] and "right" not in answer and answer["output"] == "''\n"
    assert "asks for no GPU" in node.check("torch", gpus=0)["no_gpu"]


def test_the_sites_rules_apply(node: Node) -> None:
    policy = node.place.path / "policy.json"
    policy.write_text('{"gpus_per_user": 1}')
    (lease,) = LeaseTaker(RUNTIME, {"id": "mine"}).take_all([f"GPU-{RUNTIME.new_id()}"])
    assert "allows a user 1 GPU" in node.check("torch")["no_gpu"]
    lease.release()
    with pytest.raises(Refused, match="at most 1 GPU; 2 requested"):
        node.check("torch", gpus=2)
    policy.unlink()


DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
"""


@pytest.mark.parametrize(
    ("module", "limit", "expected"),
    [
        (DAEMON + "os.abort()", 60, {"status": -6, "late": False}),
        (DAEMON + "time.sleep(600)", 1, {"status": None, "late": True}),
        ("import sys; sys.exit(3)", 60, {"status": 0, "late": False}),
    ],
    ids=["crash", "hang", "exit"],
)
def test_a_broken_import_is_reported_and_leaves_nothing(
    node: Node, module: str, limit: float, expected: Dict[str, Any]
) -> None:
    node.write("torch", module)
    answer = node.check("torch", limit=limit, gpus=0)
    assert {key: answer[key] for key in expected} == expected
    assert answer.get("raised") == ("SystemExit: 3" if answer["status"] == 0 else None)
    assert "version" not in answer


def test_set_up_lines_apply_and_end(node: Node) -> None:
    node.write("jax", "import os; __version__ = os.environ['WHICH']")
    lines = ["setsid sleep 600 &", f"export WHICH=0.4.2 PATH={PROGRAMS}:$PATH; read -r line || echo noise"]
    assert node.check("jax", setup=lines, gpus=0)["version"] == "0.4.2"
    with pytest.raises(Refused) as refused:
        node.check("jax", setup=["sleep 600 &", "echo no such module >&2; exit 7"])
    assert refused.value.code == "setup" and "status 7; they printed:\nno such module" in str(refused.value)


@pytest.mark.parametrize("lines", [[], ["sleep 600"]], ids=["import", "set-up lines"])
def test_everything_ends_with_attach(node: Node, lines: List[str]) -> None:
    """The link broke, or the user pressed Ctrl-C."""
    begun = node.folder / "begun"
    node.write("torch", f"import os, time; os.mkdir({str(begun)!r}); time.sleep(600)")
    setup = [f"mkdir {begun}", *lines] if lines else []
    request = node.request("torch", setup=setup, gpus=0)
    attach = node.place.attach()
    assert attach.stdin and attach.stdout
    attach.stdin.write(json_frame(Kind.REQUEST, request, number=1).encode())
    eventually(begun.exists, "the check")
    assert node.processes()
    attach.kill()
    attach.wait()
    attach.stdin.close()
    attach.stdout.close()


def _supervise(code: str, timeout: float = 60.0, stop: int = -1) -> supervision.Result:
    """`stop`: a pipe at which nothing happens if it is -1."""
    read, write = os.pipe()
    try:
        supervisor = supervision.Supervisor(RUNTIME, ProcessControl(), read if stop < 0 else stop)
        return supervisor.run([sys.executable, "-c", "import os, sys, time\n" + code], timeout)
    finally:
        os.close(read)
        os.close(write)


def test_of_noise_only_the_end_is_kept() -> None:
    noise = "for _ in range(100): sys.stderr.write('w' * 1_000_000)\nsys.stderr.write('end')\nprint('ok')"
    result = _supervise(noise)
    assert (result.answer, result.status, result.late) == (b"ok\n", 0, False)
    assert result.output.endswith("wend") and len(result.output) == supervision.MAX_OUTPUT


def test_an_answer_that_never_ends_is_bounded() -> None:
    result = _supervise("for _ in range(100): os.write(1, b'x' * 60_000)")
    assert result.status == 0 and len(result.answer) == supervision.MAX_ANSWER


def test_a_process_that_blocks_all_signals_is_late() -> None:
    code = (
        "import signal as s; s.pthread_sigmask(s.SIG_BLOCK, range(1, 65)); os.closerange(1, 100); s.pause()"
    )
    result = _supervise(code, timeout=0.5)
    assert (result.status, result.late) == (None, True)


def test_a_process_ends_when_nobody_wants_its_answer() -> None:
    read, write = os.pipe()
    os.close(write)
    assert _supervise("time.sleep(600)", stop=read)[2:] == (None, False)
    os.close(read)


def test_a_daemon_that_holds_the_pipes_delays_nothing() -> None:
    result = _supervise("os.write(1, b'done')\nif os.fork() == 0: os.setsid(); time.sleep(2)")
    assert (result.answer, result.status) == (b"done", 0)


REPORT = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v11.dtd">
<nvidia_smi_log>
\t<timestamp>Sun Aug  1 12:00:00 2021</timestamp>
\t<driver_version>470.57.02</driver_version>
\t<cuda_version>11.4</cuda_version>
\t<attached_gpus>1</attached_gpus>
"""


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (REPORT, ("470.57.02", "11.4")),
        (REPORT.replace("11.4", "N/A"), ("470.57.02", "")),
        ("Failed to initialize NVML: Driver/library version mismatch", ("", "")),
        (None, ("", "")),
    ],
)
def test_what_drivers_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: Optional[str], expected: Tuple[str, str]
) -> None:
    program = tmp_path / "nvidia-smi"
    if report is not None:
        (tmp_path / "report").write_text(report)
        program.write_text(f"#!/bin/sh\n[ \"$*\" = '-q -x' ] && exec /bin/cat '{tmp_path}/report'\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert driver.read_driver(RUNTIME, ProcessControl()) == expected
