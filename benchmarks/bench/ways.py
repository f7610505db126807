"""The ways to use a kernel that are compared. Each has its own folders, nodes, hub and worker."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster import Cluster
from network import Network
from shared import KERNELSPEC, KERNELSPEC_GPU, MARK, SSH_CONFIG, WORK

from jupyter_gpu_kernel.demo import gpus

HERE = Path(__file__).parent
_TIMEOUT = 90.0
_MARK = f"{MARK}=".encode()


@dataclass(frozen=True)
class Package:
    """A checkout of this project, and the Python that has it installed."""

    label: str
    folder: Path
    python: str

    @classmethod
    def at(cls, words: str) -> Package:
        """`[LABEL=]FOLDER`; FOLDER has a virtual environment of its own."""
        label, _, folder = words.rpartition("=")
        path = Path(folder).resolve()
        python = path / ".venv" / "bin" / "python"
        if not python.exists():
            raise SystemExit(f"{python} is missing: run `make venv` in {path}")
        return cls(label or path.name, path, str(python))

    @classmethod
    def own(cls) -> Package:
        return cls("", HERE.parents[1], sys.executable)


@dataclass
class Way:
    """One way, set up. `ask` runs one measure in its worker."""

    name: str
    python: str
    environment: dict[str, str]
    worker: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        self.worker = self._start_worker()

    def _start_worker(self) -> subprocess.Popen[str]:
        words = [self.python, str(HERE / "worker.py"), self.name]
        with Path(self.environment["HOME"], "worker.log").open("a") as log:
            return subprocess.Popen(words, env=self.environment, stdin=-1, stdout=-1, stderr=log, text=True)

    def ask(self, measure: str) -> dict[str, Any]:
        """The values of one measure, or {"error": …}. After an error the way starts anew."""
        assert self.worker.stdin and self.worker.stdout
        timer = threading.Timer(_TIMEOUT, self.worker.kill)
        timer.start()
        try:
            self.worker.stdin.write(measure + "\n")
            self.worker.stdin.flush()
            line = self.worker.stdout.readline()
        except BrokenPipeError:
            line = ""
        timer.cancel()
        answer: dict[str, Any] = {"error": f"no result in {_TIMEOUT:g} s, or the worker has crashed"}
        if line:
            answer = json.loads(line)
        if "error" in answer:
            self._start_anew()
        return answer

    def _start_anew(self) -> None:
        """A kernel that does not answer would go on, and slow the next measures of all ways."""
        self.worker.kill()
        self.worker.wait()
        end_processes(Path(self.environment["HOME"]))
        self.worker = self._start_worker()

    def close(self) -> None:
        """Let the worker end its kernels, and end."""
        assert self.worker.stdin
        with contextlib.suppress(BrokenPipeError):
            self.worker.stdin.close()

    def kill(self) -> None:
        """Kill the worker if `close` has not ended it."""
        try:
            self.worker.wait(10)
        except subprocess.TimeoutExpired:
            self.worker.kill()


class Setup:
    """Makes ways in `folder`, whose nodes are on `network`."""

    def __init__(self, folder: Path, network: Network) -> None:
        self._folder, self._network = folder, network
        self._clusters: list[Cluster] = []

    def close(self) -> None:
        """End all nodes, those of a way that could not be made as well."""
        for cluster in self._clusters:
            cluster.close()

    def bare(self, package: Package) -> Way:
        """The kernel on its node itself."""
        environment = self._environment("bare")
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        _write_kernelspec(environment, {"argv": argv})
        return Way("bare", sys.executable, environment)

    def ssh(self, package: Package) -> Way:
        """Plain ssh with five forwarded ports."""
        environment, cluster = self._with_cluster("ssh")
        words = [sys.executable, str(HERE / "ssh_kernel.py"), str(cluster.ssh_config), WORK]
        _write_kernelspec(environment, {"argv": [*words, sys.executable, "{connection_file}"]})
        return Way("ssh", sys.executable, environment)

    def sshpyk(self, package: Package) -> Way | None:
        """The provisioner of the package sshpyk, if that is installed. It requires shared connections."""
        if importlib.util.find_spec("sshpyk") is None:
            return None
        environment, cluster = self._with_cluster("sshpyk")
        cluster.share_connections(Path(environment["HOME"], "run"))
        config = {"ssh_host_alias": WORK, "ssh_config": str(cluster.ssh_config)}
        config |= {"remote_python": sys.executable, "remote_kernel_name": "python3"}
        stanza = {"provisioner_name": "sshpyk-provisioner", "config": config}
        _write_kernelspec(environment, {"argv": [sys.executable], "metadata": {"kernel_provisioner": stanza}})
        return Way("sshpyk", sys.executable, environment)

    def provisioner(self, package: Package) -> Way:
        """This project, in front ends that know provisioners."""
        name = f"provisioner {package.label}".strip()
        environment, cluster = self._with_cluster(name)
        if package.label:
            environment.pop("PYTHONPATH", None)  # it would hide the checkout
        prefix = Path(environment["HOME"], "prefix")
        environment["JUPYTER_PATH"] = str(prefix / "share" / "jupyter")
        _add(package, environment, cluster, "--prefix", str(prefix))
        return Way(name, package.python, environment)

    def argv(self, package: Package) -> Way:
        """This project, in front ends that run a kernelspec's argv."""
        name = f"argv {package.label}".strip()
        environment, cluster = self._with_cluster(name)
        if package.label:
            environment.pop("PYTHONPATH", None)  # it would hide the checkout
        _add(package, environment, cluster)
        return Way(name, package.python, environment)

    def _with_cluster(self, name: str) -> tuple[dict[str, str], Cluster]:
        environment = self._environment(name)
        home = Path(environment["HOME"])
        node = home / "node"
        node.mkdir()
        gpus.install(node, secrets.token_hex(4))
        session = {"HOME": str(node), "TMPDIR": str(node), "JUPYTER_GPU_KERNEL_BASE": str(node)}
        session |= {MARK: environment[MARK], "PATH": f"{node}{os.pathsep}{os.environ['PATH']}"}
        cluster = Cluster(home / "ssh", self._network, session)
        self._clusters.append(cluster)
        return {**environment, SSH_CONFIG: str(cluster.ssh_config)}, cluster

    def _environment(self, name: str) -> dict[str, str]:
        """What a front end of this way has: nothing of the user's Jupyter or ssh."""
        home = self._folder / name.replace(" ", "-")
        for part in ("run", "config"):
            (home / part).mkdir(mode=0o700, parents=True)
        # so that profilers can look into the hub, and its processes are found at the end
        (home / "config" / "jupyter_gpu_kernel_config.json").write_text(
            json.dumps({"HubApp": {"private_memory": False}})
        )
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith(("JUPYTER", "XDG_"))},
            "HOME": str(home),
            "JUPYTER_DATA_DIR": str(home / "data"),
            "JUPYTER_RUNTIME_DIR": str(home / "run"),
            "JUPYTER_CONFIG_DIR": str(home / "config"),
            "XDG_RUNTIME_DIR": str(home / "run"),
            "PYTHONDONTWRITEBYTECODE": "",
            MARK: str(home),
        }


WAYS: dict[str, Callable[[Setup, Package], Way | None]] = {
    "bare": Setup.bare,
    "ssh": Setup.ssh,
    "sshpyk": Setup.sshpyk,
    "provisioner": Setup.provisioner,
    "argv": Setup.argv,
}
OURS = ("provisioner", "argv")


def end_processes(folder: Path) -> None:
    """Kill what has been left by a way, or by all if `folder` is the run's: hubs, keepers, kernels, connections."""
    for _ in range(2):
        for entry in Path("/proc").glob("[0-9]*/environ"):
            try:
                marks = [word for word in entry.read_bytes().split(b"\0") if word.startswith(_MARK)]
                if any(Path(os.fsdecode(mark[len(_MARK) :])).is_relative_to(folder) for mark in marks):
                    os.kill(int(entry.parent.name), signal.SIGKILL)
            except OSError:  # another user's, or gone
                continue


def _add(package: Package, environment: dict[str, str], cluster: Cluster, *flags: str) -> None:
    """Add the kernelspecs, without and with a GPU."""
    for name, number in ((KERNELSPEC, 0), (KERNELSPEC_GPU, 1)):
        words = [package.python, "-m", "jupyter_gpu_kernel.cli", "add", WORK, "-F", str(cluster.ssh_config)]
        words += ["--name", name, "--gpus", str(number), "--python", sys.executable, *flags]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, cwd=environment["HOME"])
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}:\n{done.stdout}{done.stderr}")


def _write_kernelspec(environment: dict[str, str], content: dict[str, Any]) -> None:
    folder = Path(environment["JUPYTER_DATA_DIR"], "kernels", KERNELSPEC)
    folder.mkdir(parents=True)
    common = {"display_name": "bench", "language": "python", "interrupt_mode": "message"}
    (folder / "kernel.json").write_text(json.dumps({**common, **content}))
