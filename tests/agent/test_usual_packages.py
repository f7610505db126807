"""What kernels usually import: recorded by them, imported before the fork, and rejected if no fork may inherit it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import types
from pathlib import Path
from typing import Dict

import pytest

from jupyter_gpu_kernel.agent.spare.files import EnvironmentFiles, shadows
from jupyter_gpu_kernel.agent.spare.identity import changed_variables
from jupyter_gpu_kernel.agent.spare.usual_packages import UsualPackages, modules_file, used_packages

MODULES = {
    "good": "import os, csv, sys\nos.environ['GOOD'] = sys.ps1\n",
    "fails": "raise ValueError('broken')",
    "leaves": "import sys; sys.exit(3)",
    "threads": "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
    "asks": "from IPython import get_ipython\nshell = get_ipython()",
    "asks_builtins": "try:\n    shell = get_ipython()\nexcept NameError:\n    shell = None",
    "knows": "assert hasattr(get_ipython(), 'kernel')",
    "configures": "config = get_ipython().config",
    "interrupts": "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)",
    "terminates": "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "connects": "import socket\nconnection = socket.socket()",
    "reads": "open('/dev/null').close()",
    "starts": "import subprocess\nprocess = subprocess.Popen('cat', stdin=-1, stdout=-3)",
    "outside": "import lies_elsewhere",
    "makes": "import sys, types\nmade = sys.modules['made'] = types.ModuleType('made')\nmade.__file__ = '_made.py'",
    "names": "import sys\nsys.modules['__mp_main__'] = sys.modules['__main__']",
    "takes_long": "",
    "is_large": "",
}
EXPECTED = {
    "good": "",
    "fails": "ValueError: broken",
    "leaves": "SystemExit: 3",
    "threads": "it has several threads",
    "asks": "it asks for the shell of IPython",
    "asks_builtins": "it asks for the shell of IPython",
    "knows": "",
    "configures": "AttributeError: config",
    "interrupts": "an imported module handles interrupts",
    "terminates": "it handles signals",
    "connects": "it keeps a file or a connection open",
    "reads": "",
    "starts": "it has started a process",
    "outside": "it imports lies_elsewhere, which is not a part of this environment",
    "makes": "",
    "names": "",
    "lies_elsewhere": "it is not installed in this environment",
    "takes_long": "its import takes too long",
    "is_large": "it uses too much memory",
}
PROGRAM = """
import json, os, sys, time
sys.path.insert(0, sys.argv[1])
from jupyter_gpu_kernel.agent.spare import imports
from jupyter_gpu_kernel.agent.spare.imports import import_kernel, import_package
sys.modules["__main__"].__file__ = "/somewhere/agent.pyz/__main__.py"
import_kernel()
sys.path.insert(0, sys.argv[2])
for name in sys.argv[3:]:
    pid = os.fork()
    if pid == 0:
        times = iter([0.0, 121.0])
        imports._MOST_MIB = 1 if name == "is_large" else 1024
        answer = import_package(name, times.__next__ if name == "takes_long" else time.monotonic)
        left = hasattr(sys, "ps1") or hasattr(__builtins__, "get_ipython")
        os.write(1, json.dumps([name, answer, left]).encode() + b"\\n")
        os._exit(0)
    os.waitpid(pid, 0)
"""


def test_what_no_fork_may_inherit_is_rejected(tmp_path: Path) -> None:
    """In an environment of its own, which has the packages of this one, too."""
    environment, elsewhere = tmp_path / "env", tmp_path / "elsewhere"
    subprocess.check_call([sys.executable, "-m", "venv", "--without-pip", str(environment)])
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "more.pth").write_text(sysconfig.get_paths()["purelib"])
    for name, code in MODULES.items():
        (packages / f"{name}.py").write_text(code)
    elsewhere.mkdir()
    (elsewhere / "lies_elsewhere.py").write_text("")
    repository = str(Path(__file__).resolve().parents[2])
    command = [str(environment / "bin" / "python"), "-c", PROGRAM, repository, str(elsewhere), *EXPECTED]
    env = {**os.environ, "HOME": str(tmp_path)}
    output = subprocess.run(command, env=env, cwd=str(tmp_path), stdout=subprocess.PIPE, check=True).stdout
    answers = [json.loads(line) for line in output.decode().splitlines()]
    assert {name: answer for name, answer, _ in answers} == EXPECTED
    assert not any(left for _, _, left in answers)


def test_what_at_least_half_of_the_kernels_used_is_usual(tmp_path: Path) -> None:
    modules = UsualPackages(tmp_path / "modules.json")
    assert modules.usual() == []
    modules.record(["torch", "numpy"])
    assert modules.usual() == ["numpy", "torch"]
    modules.record(["numpy", "no name", "x" * 100])
    modules.record(["numpy"])
    assert modules.usual() == ["numpy"]
    for _ in range(20):
        modules.record(["pandas"])
    assert modules.usual() == ["pandas"]
    modules.reject("pandas", "it has several threads")
    assert modules.usual() == []


def test_the_last_that_were_rejected_are_remembered(tmp_path: Path) -> None:
    modules = UsualPackages(tmp_path / "modules")
    names = [f"package_{number}" for number in range(100)]
    for name in names:
        assert modules.reject(name, "it has several threads")
    modules.record(names[-30:])
    assert modules.usual() == []


def test_none_that_was_rejected_is_usual_again(tmp_path: Path) -> None:
    """A spare interpreter begins again after each: that must end, however many there are."""
    modules = UsualPackages(tmp_path / "modules.json")
    for kernel in range(2):
        modules.record([f"unfit_{kernel}_{number}" for number in range(30)])
    rejected = set()
    while usual := modules.usual():
        assert usual[0] not in rejected
        assert modules.reject(usual[0], "it has several threads")
        rejected.add(usual[0])
    assert len(rejected) == 60
    modules.record(["numpy"])
    assert modules.usual() == []


def test_what_was_rejected_in_another_environment_may_be_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "modules.json"
    modules = UsualPackages(path, "here")
    modules.record(["numpy", "pandas"])
    modules.reject("pandas", "it has several threads")
    UsualPackages(path).record(["numpy", "pandas"])  # as a kernel does
    assert modules.usual() == ["numpy"]
    assert UsualPackages(path, "there").usual() == ["numpy", "pandas"]


@pytest.mark.parametrize(
    "content", ["", "[", "[]", '{"kernels": 3}', '{"kernels": [3, [4, "a b", "ok"]]}', "[" * 9999]
)
def test_a_damaged_file_is_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "modules.json"
    path.write_text(content)
    assert UsualPackages(path).usual() in ([], ["ok"])
    UsualPackages(path).record(["numpy"])
    assert UsualPackages(path).usual()[:1] == ["numpy"]


def test_each_python_has_a_file(tmp_path: Path) -> None:
    assert modules_file(tmp_path, "/a/python") != modules_file(tmp_path, "/b/python")


def test_variables_tell_what_their_user_has_imported() -> None:
    class Odd:
        __module__ = 5  # type: ignore[assignment]

        def __getattribute__(self, name: str) -> None:
            raise AssertionError("code of a variable was run")

    variables: Dict[str, object] = {
        "a": pytest,
        "b": Odd(),
        "c": Path,
        "d": os,
        "e": "text",
        "f": pytest.raises,
    }
    assert used_packages(variables) == ["pytest", "_pytest"]


def test_a_file_of_the_users_comes_first(tmp_path: Path) -> None:
    assert not shadows(str(tmp_path), {"torch"})
    (tmp_path / "torch.py").write_text("")
    assert shadows(str(tmp_path), {"torch"}) and not shadows(str(tmp_path), {"numpy"})
    (tmp_path / "matplotlibrc").write_text("")
    assert shadows(str(tmp_path), {"matplotlib"}) and not shadows(str(tmp_path), {"mat"})


def test_an_edited_module_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An editor that writes in place does not change the time of the folder."""
    module = types.ModuleType("edited")
    module.__file__ = str(tmp_path / "edited.py")
    Path(module.__file__).write_text("x = 1")
    monkeypatch.setitem(sys.modules, "edited", module)
    files = EnvironmentFiles()
    assert not files.changed()
    Path(module.__file__).write_text("x = 10")
    assert files.changed()


def test_an_edited_path_file_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By it Python adds folders when it starts, as for a package that is edited where it is."""
    file = tmp_path / "more.pth"
    file.write_text("/a")
    monkeypatch.syspath_prepend(str(tmp_path))
    files = EnvironmentFiles()
    assert not files.changed()
    file.write_text("/ab")
    assert files.changed()


@pytest.mark.parametrize("path", [".config/seen/style", ".seenrc", ".config/seen.yaml"])
def test_edited_settings_of_a_package_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / ".config" / "seen").mkdir(parents=True)
    files = EnvironmentFiles()
    files.add_imported(["seen"])
    (tmp_path / ".unseenrc").write_text("")
    assert not files.changed()
    (tmp_path / path).write_text("a")
    assert files.changed()
    files.add_imported()
    assert not files.changed()
    (tmp_path / path).write_text("ab")
    assert files.changed()


def test_variables_that_imports_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {**os.environ, "JGK_OLD": "1"}
    monkeypatch.setenv("JGK_NEW", "2")
    monkeypatch.setenv("JUPYTER_GPU_KERNEL_OWN", "3")
    assert changed_variables(before) == {"JGK_OLD": None, "JGK_NEW": "2"}
