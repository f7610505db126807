"""The agent as one file: a Python compiles each of its modules once, and uses no compiled module that is damaged."""

from __future__ import annotations

import bz2
import io
import marshal
import os
import subprocess
import sys
import threading
import traceback
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jupyter_gpu_kernel.agent import loader
from jupyter_gpu_kernel.agent.mux import attach
from jupyter_gpu_kernel.hub.node.install import agent_file
from jupyter_gpu_kernel.wire import fields

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system")
COUNT = """
compiled = []
sys.addaudithook(lambda event, what: event == "compile" and compiled.append(str(what[1])))
from jupyter_gpu_kernel.agent.mux import attach
print(len([name for name in compiled if "jupyter_gpu_kernel" in name]), attach.SILENCE)
"""
"""Run in place of the agent: says how many of its modules a process has compiled."""
IMPORT_ALL = """
import importlib
names = sys.modules["__main__"].__spec__.loader.get_data("sources").decode().split("\\0")[::2]
for name in names:
    importlib.import_module(name[:-3].replace("/", "."))
print("\\n".join(names))
"""


class Agent:
    """A folder with the agent, whose program is another one."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "agent-0.pyz"
        self.compiled = folder / f"agent-0.pyz.{sys.implementation.cache_tag}"
        self.attach = self.compiled / "jupyter_gpu_kernel.agent.mux.attach"

    def run(self, main: str = COUNT) -> str:
        """What it prints, on stderr too."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(agent_file, "_MAIN_PY", main)
            agent_file.packed_once.cache_clear()
            self.file.write_bytes(agent_file.pack().data)
        agent_file.packed_once.cache_clear()
        command = [sys.executable, "-I", str(self.file)]
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
    assert agent.compiled.stat().st_mode & 0o777 == 0o700 and agent.attach.stat().st_mode & 0o777 == 0o600


def test_it_is_small() -> None:
    """What is sent to a node on which it is not yet."""
    package = agent_file.pack()
    assert len(package.packed("bz2")) < 200_000
    assert bz2.decompress(package.packed("bz2")) == zlib.decompress(package.packed("zlib")) == package.data


def test_the_sources_are_sent_as_they_are() -> None:
    """So that tracebacks and `help` show what the authors wrote."""
    with zipfile.ZipFile(io.BytesIO(agent_file.pack().data)) as archive:
        words = archive.read(loader.SOURCES).decode().split("\0")
    package = Path(agent_file.__file__).parents[3]
    for path, source in zip(words[::2], words[1::2], strict=True):
        file = package.parent / path
        assert source == ("" if file == package / "__init__.py" else file.read_text("utf-8")), path


def test_no_module_needs_one_that_is_not_sent(agent: Agent) -> None:
    """The file has all that its modules import."""
    sent = {path for path in agent_file._read_sources() if not path.endswith("/loader.py")}
    assert set(agent.run(IMPORT_ALL).split()) == sent


def cut(agent: Agent) -> None:
    agent.attach.write_bytes(agent.attach.read_bytes()[:-1])


def flip(agent: Agent) -> None:
    data = bytearray(agent.attach.read_bytes())
    data[len(data) // 2] ^= 1
    agent.attach.write_bytes(data)


def empty(agent: Agent) -> None:
    agent.attach.write_bytes(b"")


def exchange(agent: Agent) -> None:
    """Another file's content, which is whole."""
    other = agent.compiled / "kept"
    agent.attach.rename(other)
    agent.attach.symlink_to(other)


def block(agent: Agent) -> None:
    """Whoever opens it to read waits for a writer."""
    agent.attach.unlink()
    os.mkfifo(agent.attach)


def take(agent: Agent) -> None:
    """It is another user's file, with the same content."""
    if os.geteuid() != 0:
        pytest.skip("only root gives a file to another user")
    os.chown(agent.attach, 65534, -1)


@pytest.mark.parametrize("damage", [cut, flip, empty, exchange, block, take])
def test_a_damaged_module_is_compiled_again(agent: Agent, damage: object) -> None:
    assert callable(damage)
    agent.compiles()
    damage(agent)
    assert agent.compiles() == 1
    assert agent.compiles() == 0 and not agent.attach.is_symlink()


def test_another_agents_modules_are_not_used(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the same name, as in a checkout: sources differ, so all are compiled again."""
    count = agent.compiles()
    sources = agent_file._read_sources()
    sources["jupyter_gpu_kernel/wire/__init__.py"] += "\nMORE = 1\n"
    monkeypatch.setattr(agent_file, "_read_sources", lambda: sources)
    assert agent.compiles() == count


def test_another_pythons_modules_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same version, but with other byte code, as before a release; and those of another agent."""

    def stored(build: bytes) -> object:
        return loader.AgentImporter(str(tmp_path / "a.pyz"), "p", build, lambda name: b"")._stored("p.m")

    importer = loader.AgentImporter(str(tmp_path / "a.pyz"), "p", b"build", lambda name: b"")
    importer._store("p.m", marshal.dumps("code"))
    assert stored(b"build") == "code" and stored(b"other") is None
    monkeypatch.setattr(loader, "MAGIC_NUMBER", b"none")
    assert stored(b"build") is None


def test_a_folder_in_the_place_of_a_module_is_passed_over(agent: Agent) -> None:
    agent.compiles()
    agent.attach.unlink()
    agent.attach.mkdir()
    assert agent.compiles() == agent.compiles() == 1


def link_elsewhere(agent: Agent) -> None:
    elsewhere = agent.compiled.with_name("elsewhere")
    agent.compiled.rename(elsewhere)
    agent.compiled.symlink_to(elsewhere)


def let_others_write(agent: Agent) -> None:
    agent.compiled.chmod(0o777)


def give_away(agent: Agent) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives a folder to another user")
    os.chown(agent.compiled, 65534, -1)


@pytest.mark.parametrize("change", [link_elsewhere, let_others_write, give_away])
def test_a_folder_that_is_not_ours_alone_is_not_used(agent: Agent, change: object) -> None:
    """Another user may have put it there: nothing is read from it, and nothing is stored."""
    assert callable(change)
    count = agent.compiles()
    agent.attach.unlink()
    change(agent)
    assert agent.compiles() == agent.compiles() == count
    assert not agent.attach.exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_it_runs_where_nothing_can_be_stored(agent: Agent) -> None:
    """A file is in the way of the folder; root writes everywhere."""
    agent.compiled.write_text("")
    assert agent.compiles() == agent.compiles() > 50


def test_a_traceback_names_file_line_and_source(agent: Agent) -> None:
    told = agent.run(
        "import traceback\nfrom jupyter_gpu_kernel.wire import fields\n"
        "try:\n    fields.text({'a': 1}, 'a')\nexcept fields.FieldError:\n    print(traceback.format_exc())\n"
    )
    with pytest.raises(fields.FieldError) as raised:
        fields.text({"a": 1}, "a")
    last = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert f'/agent-0.pyz/jupyter_gpu_kernel/wire/fields.py", line {last.lineno}, in {last.name}' in told
    assert last.line and last.line in told


def test_code_that_was_run_is_not_kept(agent: Agent) -> None:
    """It is large: each keeper would hold it twice."""
    told = agent.run(
        "from jupyter_gpu_kernel.wire import fields\nprint(fields.__spec__.loader_state, fields.text.__name__)\n"
    )
    assert told == "None text\n"


def test_a_kernels_process_keeps_nothing_of_the_importer(agent: Agent) -> None:
    """A user who has installed this package imports theirs in a cell."""
    told = agent.run(
        "from jupyter_gpu_kernel.agent.in_kernel import main as m\nm.restore_sys(['-f', 'x'])\n"
        "print([finder for finder in sys.meta_path if 'Agent' in str(finder)],"
        " [name for name in sys.modules if name.startswith('jupyter_gpu_kernel')])"
    )
    assert told == "[] []\n"


def test_nodes_that_are_connected_at_once_have_the_agent_packed_once() -> None:
    agent_file.packed_once.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        barrier = threading.Barrier(4)
        packed = list(pool.map(lambda _: (barrier.wait(), agent_file.pack())[1], range(4)))
    assert len({id(one) for one in packed}) == 1 and agent_file.packed_once.cache_info().misses == 1
