"""The agent as it is sent, and as a Python runs it from its folder."""

from __future__ import annotations

import bz2
import os
import subprocess
import sys
import threading
import traceback
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from installed import files_of, unpack

from jupyter_gpu_kernel.agent.mux import attach
from jupyter_gpu_kernel.hub.node import install
from jupyter_gpu_kernel.wire import fields

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system")
COUNT = """
import sys
compiled = []
sys.addaudithook(lambda event, what: event == "compile" and compiled.append(str(what[1])))
from jupyter_gpu_kernel.agent.mux import attach
print(len([name for name in compiled if "jupyter_gpu_kernel" in name]), attach.SILENCE)
"""
"""Run in place of the agent: says how many of its modules a process has compiled."""
TOUCH = """
import os, sys, time
from jupyter_gpu_kernel.agent import paths
for age in (0.9, 1.1):
    old = time.time() - age * 86400
    for path in (paths.agent_folder(), paths.__file__):
        os.utime(path, (old, old))
    paths.touch_agent(time.time())
    print(*(os.stat(path).st_mtime > old + 1 for path in (paths.agent_folder(), paths.__file__)))
"""


class Agent:
    """A folder with the agent, whose program is another one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "agent-0"
        unpack(install.pack(), self.folder)

    def run(self, main: str = COUNT) -> str:
        """What it prints, on stderr too."""
        (self.folder / "__main__.py").write_text(main)
        command = [sys.executable, "-I", str(self.folder)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def compiles(self) -> int:
        """How many modules one process compiles."""
        count, silence = self.run().split()
        assert int(silence) == attach.SILENCE
        return int(count)


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


def test_each_module_is_compiled_once(agent: Agent) -> None:
    assert agent.compiles() > 50
    assert agent.compiles() == 0


def test_its_files_are_kept_young_but_not_compiled_anew_each_time(agent: Agent) -> None:
    """Compiled modules have the times of their sources."""
    assert agent.run(TOUCH).splitlines() == ["False False", "True True"]


def test_a_python_that_is_too_old_says_so_before_it_reads_any_other_module(tmp_path: Path) -> None:
    """It could not parse them."""
    old = f"import sys; sys.version_info = (3, 6, 8); exec({files_of(install.pack())['__main__.py']!r})"
    ended = subprocess.run([sys.executable, "-I", "-c", old], capture_output=True, text=True, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (
        install.OLD_PYTHON,
        "Python 3.6 is too old: 3.8 or newer is needed\n",
    )


def test_it_is_small() -> None:
    """What is sent to a node on which it is not yet."""
    package = install.pack()
    assert len(package.packed("bz2")) < 200_000
    assert bz2.decompress(package.packed("bz2")) == zlib.decompress(package.packed("zlib")) == package.data


def test_the_sources_are_sent_as_they_are() -> None:
    """So that tracebacks and `help` show what the authors wrote."""
    package = Path(install.__file__).parents[2]
    files = files_of(install.pack())
    assert len(files) > 100 and "agent.__main__ import main" in files.pop("__main__.py")
    for path, source in files.items():
        file = package.parent / path
        assert source == ("" if file == package / "__init__.py" else file.read_text("utf-8")), path


def test_no_module_needs_one_that_is_not_sent(agent: Agent) -> None:
    """The folder has all that its modules import."""
    names = [path[:-3].replace("/", ".") for path in files_of(install.pack()) if "/" in path]
    agent.run(f"import importlib\nfor name in {names!r}:\n    importlib.import_module(name)\n")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_it_runs_where_nothing_can_be_stored(agent: Agent) -> None:
    for folder in (agent.folder, *agent.folder.rglob("*")):
        if folder.is_dir():
            folder.chmod(0o500)
    (agent.folder / "__main__.py").write_text(COUNT)
    assert agent.compiles() == agent.compiles() > 50


def test_a_traceback_names_file_line_and_source(agent: Agent) -> None:
    printed = agent.run(
        "import traceback\nfrom jupyter_gpu_kernel.wire import fields\n"
        "try:\n    fields.text({'a': 1}, 'a')\nexcept fields.FieldError:\n    print(traceback.format_exc())\n"
    )
    with pytest.raises(fields.FieldError) as raised:
        fields.text({"a": 1}, "a")
    last = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert f'/agent-0/jupyter_gpu_kernel/wire/fields.py", line {last.lineno}, in {last.name}' in printed
    assert last.line and last.line in printed


def test_a_kernels_process_keeps_nothing_of_the_agent(agent: Agent) -> None:
    """A user who has installed this package imports theirs in a cell."""
    printed = agent.run(
        "import sys\nfrom jupyter_gpu_kernel.agent.in_kernel import main as m\n"
        "m.restore_path()\nm.restore_sys(['-f', 'x'])\n"
        "print([entry for entry in sys.path if 'agent-0' in entry],"
        " [name for name in sys.modules if name.startswith('jupyter_gpu_kernel')])"
    )
    assert printed == "[] []\n"


def test_nodes_that_are_connected_at_once_have_the_agent_packed_once() -> None:
    install.packed_once.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        barrier = threading.Barrier(4)
        packed = list(pool.map(lambda _: (barrier.wait(), install.pack())[1], range(4)))
    assert len({id(one) for one in packed}) == 1 and install.packed_once.cache_info().misses == 1
