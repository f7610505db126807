"""The process `check-framework NAME`: starts as a kernel does, imports one framework, and computes with it on one GPU.

    python agent.pyz check-framework torch

As in a kernel, no GPU is visible at the start, the user's IPython start-up files run, and only then the GPU is named in
the environment. The facts are written as lines of JSON, each before the step that may crash or hang. Everything here
runs in the Python of the user, with whatever is installed there.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

from .frameworks import FRAMEWORKS, installed
from .supervision import inherited_pipes, read_request, write_answer

_LIBRARY = re.compile(
    r"lib(?:cudart|cublas|cublasLt|cudnn|cufft|cusolver|cusparse|curand|nvrtc|nvJitLink|nccl|cuda|amdhip64)"
    r"(?:[-._][^/]*)?\.so[^/]*$"
)
_MOST_LIBRARIES = 60
_ERROR = 1500
_STARTUP = ("startup/*.py", "startup/*.ipy", "ipython_config.py", "ipython_kernel_config.py")


class Facts:
    """Writes facts, as lines of JSON."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def tell(self, **facts: Any) -> None:
        """Write these facts; later ones replace earlier ones of the same name."""
        write_answer(self._descriptor, json.dumps(facts, default=str).encode() + b"\n")


def main(name: str) -> None:
    """Check the framework, and end this process at once: the exit of a broken library may hang or crash, too."""
    request_fd, answer_fd = inherited_pipes()
    request = json.loads(read_request(request_fd).decode())
    facts = Facts(answer_fd)
    _restore_path()
    if name == "installed":
        facts.tell(installed=installed(), python=sys.version.split()[0], prefix=sys.prefix)
    else:
        facts.tell(stage="startup")
        app = _run_startup(facts)  # it keeps what the start-up files have made
        early = [path for path in loaded_libraries() if re.search(r"/libcuda\.so", path)]
        facts.tell(early=bool(early), imported_early=name in sys.modules)
        os.environ.update(request["env"])
        _check(name, str(request["gpu"]), facts)
        del app
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _check(name: str, gpu: str, facts: Facts) -> None:
    def attempt(stage: str, work: Callable[[], Dict[str, Any]]) -> bool:
        facts.tell(stage=stage)
        try:
            facts.tell(**work())
        except BaseException as error:  # also SystemExit of a library
            facts.tell(error={"stage": stage, "type": type(error).__name__, "text": str(error)[:_ERROR]})
            return False
        return True

    framework = FRAMEWORKS[name]()
    facts.tell(library_path=os.environ.get("LD_LIBRARY_PATH", "")[:4000], own=own_libraries(name))
    if attempt("import", framework.describe) and gpu and attempt("devices", framework.devices):
        attempt("matmul", framework.matmul)
    facts.tell(libraries=loaded_libraries(), stage="done")


def _restore_path() -> None:
    """Make sys.path as a kernel's: the working directory comes first, and the agent is not on it."""
    archive = os.path.abspath(sys.argv[0])
    rest = [entry for entry in sys.path if entry and os.path.abspath(entry) not in (archive, os.getcwd())]
    sys.path[:] = ["", *rest]


def _run_startup(facts: Facts) -> Any:
    """Run what IPython runs at the start of a kernel, if the user has any of it. Return IPython's application."""
    profile = Path(os.environ.get("IPYTHONDIR") or os.path.expanduser("~/.ipython")) / "profile_default"
    try:
        if not any(path for pattern in _STARTUP for path in profile.glob(pattern)):
            return None
        app = importlib.import_module("IPython.terminal.ipapp").TerminalIPythonApp()
        app.config_file_name = "ipython_kernel_config.py"
        app.initialize(["--HistoryManager.enabled=False", "--no-banner", "--no-confirm-exit"])
        return app
    except BaseException as error:
        facts.tell(startup_error=f"{type(error).__name__}: {error}"[:_ERROR])
        return None


def loaded_libraries() -> List[str]:
    """The paths of the CUDA libraries that this process has mapped."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            paths = dict.fromkeys(line.split(None, 5)[5].strip() for line in file if line.count("/") > 0)
    except (OSError, IndexError):
        return []
    return [path for path in paths if _LIBRARY.search(path)][:_MOST_LIBRARIES]


def own_libraries(name: str) -> List[str]:
    """The paths of the CUDA libraries that were installed with the framework."""
    try:
        spec = importlib.util.find_spec(name)
        package = Path(spec.origin).parent if spec and spec.origin else None
    except (ImportError, ValueError):
        return []
    if package is None:
        return []
    folders = [package / "lib", *package.parent.glob("nvidia/*/lib")]
    files = [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())]
    real = (
        os.path.realpath(str(path)) for path in files if _LIBRARY.search(str(path))
    )  # as in /proc/self/maps
    return list(dict.fromkeys(real))[:_MOST_LIBRARIES]
