"""The ways to use a kernel that are compared. Each has its own folders, nodes, hub and worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster import WORK, Cluster
from network import Network

HERE = Path(__file__).parent
MARK = "JUPYTER_GPU_KERNEL_BENCH"
"""The variable that all processes of a run have in their environment, with the run's folder."""
KERNELSPEC = "bench"


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
    cluster: Cluster | None = None
    worker: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        words = [self.python, str(HERE / "worker.py"), KERNELSPEC]
        folder = Path(self.environment["HOME"])
        with (folder / "worker.log").open("w") as log:
            self.worker = subprocess.Popen(
                words, env=self.environment, stdin=-1, stdout=-1, stderr=log, text=True
            )

    def ask(self, measure: str) -> dict[str, Any]:
        """The values of one measure, or {"error": …}."""
        assert self.worker.stdin and self.worker.stdout
        try:
            self.worker.stdin.write(measure + "\n")
            self.worker.stdin.flush()
            line = self.worker.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the worker has ended"}
        return answer

    def close(self) -> None:
        """End the kernels, the worker and the nodes."""
        assert self.worker.stdin
        self.worker.stdin.close()
        try:
            self.worker.wait(30)
        except subprocess.TimeoutExpired:
            self.worker.kill()
        if self.cluster:
            self.cluster.close()


class Setup:
    """Makes ways in `folder`, whose nodes are on `network`."""

    def __init__(self, folder: Path, network: Network) -> None:
        self._folder, self._network = folder, network

    def bare(self, package: Package) -> Way:
        """The kernel on its node itself."""
        environment = self._environment("bare")
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        _write_kernelspec(environment, {"argv": argv})
        return Way("bare", sys.executable, environment)

    def provisioner(self, package: Package) -> Way:
        """This project, in front ends that know provisioners."""
        name = f"provisioner {package.label}".strip()
        environment, cluster = self._with_cluster(name)
        prefix = Path(environment["HOME"], "prefix")
        environment["JUPYTER_PATH"] = str(prefix / "share" / "jupyter")
        _add(package, environment, cluster, "--prefix", str(prefix))
        return Way(name, package.python, environment, cluster)

    def argv(self, package: Package) -> Way:
        """This project, in front ends that run a kernelspec's argv."""
        name = f"argv {package.label}".strip()
        environment, cluster = self._with_cluster(name)
        _add(package, environment, cluster)
        return Way(name, package.python, environment, cluster)

    def _with_cluster(self, name: str) -> tuple[dict[str, str], Cluster]:
        environment = self._environment(name)
        home = Path(environment["HOME"])
        node = home / "node"
        node.mkdir()
        session = {"HOME": str(node), "TMPDIR": str(node), "JUPYTER_GPU_KERNEL_BASE": str(node)}
        session[MARK] = environment[MARK]
        return environment, Cluster(home / "ssh", self._network, session)

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
            "JUPYTER_CONFIG_DIR": str(home / "config"),
            "XDG_RUNTIME_DIR": str(home / "run"),
            "PYTHONDONTWRITEBYTECODE": "",
            MARK: str(self._folder),
        }


WAYS: dict[str, Callable[[Setup, Package], Way]] = {
    "bare": Setup.bare,
    "provisioner": Setup.provisioner,
    "argv": Setup.argv,
}
OURS = ("provisioner", "argv")


def _add(package: Package, environment: dict[str, str], cluster: Cluster, *flags: str) -> None:
    words = [package.python, "-m", "jupyter_gpu_kernel.cli", "add", WORK, "-F", str(cluster.ssh_config)]
    words += ["--name", KERNELSPEC, "--gpus", "0", "--python", sys.executable, *flags]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, cwd=environment["HOME"])
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}:\n{done.stdout}{done.stderr}")


def _write_kernelspec(environment: dict[str, str], content: dict[str, Any]) -> None:
    folder = Path(environment["JUPYTER_DATA_DIR"], "kernels", KERNELSPEC)
    folder.mkdir(parents=True)
    common = {"display_name": "bench", "language": "python", "interrupt_mode": "message"}
    (folder / "kernel.json").write_text(json.dumps({**common, **content}))
