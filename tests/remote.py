"""A work node behind a login node, and what Jupyter needs to start kernels there: the fixture `remote`.

Both hops are real sshd (see sshd.py), the work node has a practice nvidia-smi and a folder of its own for agents.
Jupyter's folders and the hub are this test session's own. There are four kernelspecs, all with this very Python:
“gpu” and “cpu” for the provisioner, “gpu-argv” and “cpu-argv” with argv alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from gpu_names import new_uuid
from processes import has_ended, kill
from sshd import TwoHops
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel import kernelspecs
from jupyter_gpu_kernel.agent.spare.places import retire_all
from jupyter_gpu_kernel.client import HubClient
from jupyter_gpu_kernel.errors import GpuKernelError
from jupyter_gpu_kernel.settings import parse


class Remote:
    """`environment` leads Jupyter here, in this process (while a module's `remote` is in use) and in new ones."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hops = TwoHops(folder / "hops")
        self.base = folder / "node"
        self.busy, *self.free = (new_uuid() for _ in range(4))
        self.data = folder / "data"
        self.runtime = folder / "runtime"
        self.transport = "auto"
        self.environment = {
            "JUPYTER_DATA_DIR": str(self.data),
            "JUPYTER_RUNTIME_DIR": str(self.runtime),
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "JUPYTER_PATH": str(folder / "prefix" / "share" / "jupyter"),
            "JUPYTER_PLATFORM_DIRS": "1",
            "IPYTHONDIR": str(folder / "ipython"),
            "XDG_RUNTIME_DIR": str(folder / "run"),
        }
        for path in (self.data, self.runtime, folder / "run", self.base):
            path.mkdir(mode=0o700)

    def start(self) -> None:
        """Both hops listen, the GPUs are there, the kernelspecs written."""
        state = self.folder / "gpus.json"
        gpus: list[dict[str, Any]] = [{"uuid": known} for known in (self.busy, *self.free)]
        gpus[0]["processes"] = [{"pid": 1, "memory": 40_000, "name": "somebody"}]
        state.write_text(json.dumps({"gpus": gpus}))
        programs = [str(Path(__file__).parent / "programs"), str(Path(sys.executable).parent)]
        self.hops.work.environment.update(
            PATH=os.pathsep.join([*programs, os.environ.get("PATH", os.defpath)]),
            FAKE_NVIDIA_STATE=str(state),
            JUPYTER_GPU_KERNEL_BASE=str(self.base),
        )
        self.hops.start()
        self.use_transport("auto")

    def use_transport(self, transport: str) -> None:
        """The kernelspecs, and those written from now on, have this transport."""
        self.transport = transport
        for name, gpus_wanted in (("gpu", 1), ("cpu", 0)):
            self.write(name, provisioner=True, gpus=gpus_wanted)
            self.write(f"{name}-argv", gpus=gpus_wanted)

    def write(self, name: str, *, provisioner: bool = False, **settings: Any) -> kernelspecs.Kernelspec:
        """One more kernelspec, or another in its place."""
        settings = {
            "route": list(self.hops.route),
            "config": str(self.hops.ssh_config),
            "transport": self.transport,
            "python": sys.executable,
            "gpus": 0,
            **settings,
        }
        prefix = self.folder / "prefix" if provisioner else None
        with self.in_use():
            return kernelspecs.write(name, parse(settings), prefix=prefix, replace=True)

    @contextlib.contextmanager
    def written(self, name: str, **settings: Any) -> Iterator[None]:
        """A kernelspec, as `write` makes it, that is removed at the end: calls that ask all nodes ask its node, too."""
        self.write(name, **settings)
        try:
            yield
        finally:
            with self.in_use():
                kernelspecs.remove(name)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """This process's Jupyter finds these kernelspecs and this hub."""
        with pytest.MonkeyPatch.context() as patch:
            for key, value in self.environment.items():
                patch.setenv(key, value)
            yield

    def program_environment(self, **more: str) -> dict[str, str]:
        """For a new process."""
        return {**os.environ, **self.environment, **more}

    def program(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs `jupyter gpu-kernel` to its end."""
        command = [sys.executable, "-m", "jupyter_gpu_kernel.cli", *words]
        environment = self.program_environment()
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE)

    def ask(self, op: str, **arguments: Any) -> Any:
        """The hub's answer to an operation."""
        with self.in_use(), HubClient(start=False) as hub:
            return hub.call(op, timeout=DEADLINE, **arguments)

    def hub_pid(self) -> int:
        return int(self.ask("hello")["pid"])

    def logins(self) -> int:
        """How often the login node has let us in."""
        return sum("Accepted publickey" in line for line in self.hops.login.log)

    def kernels_on_node(self) -> list[str]:
        """Their folders, which a keeper takes away with its kernel."""
        return sorted(path.name for path in self.base.glob("jupyter-gpu-kernel-*/k/*"))

    def story(self, kernel_id: str) -> list[dict[str, Any]]:
        """What the node says happened to a kernel."""
        paths = self.base.glob(f"jupyter-gpu-kernel-*/stories/{kernel_id}.jsonl")
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]

    def processes(self) -> list[psutil.Process]:
        """The hub, launchers, agents, keepers, kernels of this fixture, known by the environment they have."""
        return [process for process in psutil.process_iter() if self._ours(process)]

    def _ours(self, process: psutil.Process) -> bool:
        if process.pid == os.getpid():
            return False
        with contextlib.suppress(psutil.Error, ProcessLookupError):  # it may be ending
            has = process.environ()
            marks = {"JUPYTER_GPU_KERNEL_BASE": str(self.base), "JUPYTER_DATA_DIR": str(self.data)}
            return any(has.get(key) == value for key, value in marks.items())
        return False

    def nothing_left(self) -> None:
        """No kernel is on the node or in the hub."""
        left = self.kernels_on_node()
        eventually(lambda: not self.kernels_on_node(), f"the node has {[self.story(one) for one in left]}")
        with contextlib.suppress(GpuKernelError):  # no hub: no kernels
            eventually(lambda: not self.ask("kernels"), "the hub has no kernels")

    def stop(self) -> None:
        """The hub ends when told so, and then nothing of ours is left."""
        with contextlib.suppress(GpuKernelError):
            hub = self.hub_pid()  # which hides its environment from everybody but root
            self.ask("shutdown")
            eventually(lambda: has_ended(hub), "the hub has ended")
        for root in self.base.glob("jupyter-gpu-kernel-*"):  # they would wait for another kernel first
            retire_all(root)
        try:
            eventually(lambda: not self.processes(), "no process is left")
        finally:
            left = kill(self.processes())
            self.hops.stop()
        assert not left


@pytest.fixture(scope="session")
def remote_session() -> Iterator[Remote]:
    """The one of this test session."""
    with tempfile.TemporaryDirectory(prefix="jgk-", dir="/tmp") as folder:  # a socket's path must be short
        remote = Remote(Path(folder))
        remote.start()
        try:
            yield remote
        finally:
            remote.stop()


@pytest.fixture(scope="module")
def remote(remote_session: Remote, request: pytest.FixtureRequest) -> Iterator[Remote]:
    """A module's use of it: Jupyter looks there, and no kernel may be left behind."""
    with remote_session.in_use():
        remote_session.use_transport(getattr(request, "param", "auto"))
        yield remote_session
        remote_session.nothing_left()


over_both_transports = pytest.mark.parametrize("remote", ["paramiko", "ssh"], indirect=True, scope="module")
"""For modules and tests whose kernels are to be used over either of them."""
