"""Bringing the agent to a node, with the shells that nodes have, and what is said where it cannot be."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from installed import files_of, unpack

from jupyter_gpu_kernel.errors import AgentError, ConnectError
from jupyter_gpu_kernel.hub.node import install
from jupyter_gpu_kernel.hub.transport.stream import CommandStream, Ends
from jupyter_gpu_kernel.wire.stream.frames import MAGIC, FrameReader, Kind, json_frame

pytestmark = [pytest.mark.full, pytest.mark.skipif(sys.platform != "linux", reason="a work node has Linux")]
SHELLS = {"dash": ["dash"], "bash": ["bash"], "bash as sh": ["bash", "--posix"], "busybox": ["busybox", "sh"]}


class Shell(Ends):
    """A command on the node that carries a stream, as an SSH channel does."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.written = 0
        self.break_after: int | None = None
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=env["HOME"],
            env=env,
        )
        self._lock = threading.Lock()

    def read(self, size: int) -> bytes:
        assert self._process.stdout
        with self._lock:
            data = b"" if self._process.stdout.closed else self._process.stdout.read(size)
        return data

    def read_stderr(self, size: int) -> bytes:
        assert self._process.stderr
        data = self._process.stderr.read(size)
        if not data:
            self._process.stderr.close()
        return data

    def write(self, data: memoryview) -> int:
        assert self._process.stdin
        if self.break_after is not None and self.written + len(data) > self.break_after:
            self._process.stdin.write(data[: self.break_after - self.written])
            self._process.stdin.close()
            raise OSError("cut in the middle of the upload")
        sent = self._process.stdin.write(data) or 0
        self.written += sent
        return sent

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        if self.break_after is None:
            self._process.kill()
        self._process.wait()
        with self._lock:
            self._process.stdout.close()

    def close_stdin(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()

    def wait(self, timeout: float) -> int:
        return self._process.wait(timeout)


class Machine:
    """A node with its own home and base folder, whose /bin/sh is `shell`."""

    def __init__(self, folder: Path) -> None:
        self.base = folder / "base"
        self.base.mkdir()
        self.root = self.base / f"jupyter-gpu-kernel-{os.getuid()}"
        self.shell = ["sh"]
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "JUPYTER_GPU_KERNEL_BASE": str(self.base),
        }
        self.streams: list[Shell] = []
        self.break_after: int | None = None

    def open(self, command: str) -> CommandStream:
        assert command == "/bin/sh"
        stream = Shell(self.shell, self.env)
        stream.break_after = self.break_after
        self.streams.append(stream)
        return CommandStream(stream)

    def dial(self, python: str = sys.executable) -> CommandStream:
        return install.dial(self, install.pack(), python, "gpu2")

    def files(self) -> list[str]:
        """What lies in the agent's folder, whatever its name begins with."""
        return sorted(entry.name for entry in self.root.iterdir())

    def sources(self) -> dict[str, str]:
        """The sources of the agent that is installed."""
        folder = self.root / install.pack().name
        return {str(path.relative_to(folder)): path.read_text("utf-8") for path in folder.rglob("*.py")}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    for stream in machine.streams:
        stream.close()


def ask(stream: CommandStream, do: str) -> object:
    """The answer of the agent behind the stream, without the identity that each has."""
    reader = FrameReader()
    stream.write(json_frame(Kind.REQUEST, {"do": do}, number=5).encode())
    while data := stream.read(65536):
        for frame in reader.feed(data):
            if frame.kind is Kind.REPLY:
                assert frame.number == 5
                answer = frame.json()
                assert re.fullmatch("[0-9a-f]{32}", answer.pop("root"))
                return answer
    raise AssertionError("the agent hung up")


def test_a_package_is_the_same_for_the_same_sources() -> None:
    code = "from jupyter_gpu_kernel.hub.node import install; print(install.pack().name)"
    names = {
        subprocess.check_output([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed})
        for seed in "12"
    }
    assert len(names) == 1


def test_a_hub_outlives_the_files_it_came_from(tmp_path: Path) -> None:
    """As when its environment is upgraded or removed: what it dials with is of one version."""
    shutil.copytree(Path(install.__file__).parents[2], tmp_path / "jupyter_gpu_kernel")
    code = (
        "import shutil, sys; from jupyter_gpu_kernel.hub.node import install\n"
        "package = install.pack()\n"
        "assert install.__file__.startswith(sys.argv[1])\n"
        "shutil.rmtree(sys.argv[1])\n"
        "assert install.pack() is package and install.script(package, 'python')"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, cwd=tmp_path)


@pytest.mark.parametrize("shell", SHELLS)
def test_installs_once_and_greets(machine: Machine, shell: str) -> None:
    if shutil.which(SHELLS[shell][0]) is None:
        pytest.skip(f"no {SHELLS[shell][0]} here")
    machine.shell = SHELLS[shell]
    package = install.pack()
    assert ask(machine.dial(), "list") == {"kernels": []}
    assert 1.1 * len(package.packed("bz2")) > machine.streams[0].written > len(package.packed("bz2"))
    assert stat.S_IMODE(machine.root.stat().st_mode) == 0o700
    assert machine.sources() == files_of(package)
    assert machine.files() == [package.name, "id"]
    assert ask(machine.dial(), "list") == {"kernels": []}
    assert machine.streams[1].written < 10_000, "uploaded again"


def test_a_python_without_bz2(machine: Machine, tmp_path: Path) -> None:
    """As one may be that was compiled by hand."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\ncase $3 in *bz2*) echo No module named _bz2 >&2; exit 1;; esac\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o700)
    assert ask(machine.dial(str(python)), "list") == {"kernels": []}
    assert machine.streams[0].written > len(install.pack().packed("zlib"))


def test_start_up_files_that_print_are_no_harm(machine: Machine) -> None:
    machine.shell = ["sh", "-c", r"printf 'Welcome to gpu2!\n\0\377JG\n'; exec sh"]
    stream = machine.dial()
    assert stream.read(len(MAGIC)).startswith(MAGIC)


def test_start_up_files_that_print_without_end(machine: Machine) -> None:
    machine.shell = ["sh", "-c", "yes 'Welcome to gpu2!'"]
    with pytest.raises(AgentError, match="print without end") as error:
        machine.dial()
    assert ".bashrc" in error.value.remedy
    assert error.value.hop == "gpu2"


def test_start_up_files_that_read_a_line_are_no_harm(machine: Machine) -> None:
    machine.shell = ["sh", "-c", "read -r line; exec sh"]
    assert ask(machine.dial(), "list") == {"kernels": []}


def test_start_up_files_that_read_the_script_are_named(machine: Machine) -> None:
    machine.shell = ["sh", "-c", "cat >/dev/null; exec sh"]
    with pytest.raises(ConnectError, match="the agent did not start within 1 s") as error:
        install.dial(machine, install.pack(), sys.executable, "gpu2", timeout=1)
    assert "start-up files" in error.value.remedy


def test_a_shell_that_ends(machine: Machine) -> None:
    machine.shell = ["sh", "-c", "echo This account is not available; echo go away >&2; exit 1"]
    with pytest.raises(AgentError, match="status 1") as error:
        machine.dial()
    assert "This account is not available" in error.value.cause
    assert "go away" in error.value.cause


def test_a_connection_that_is_cut_before_the_shell_has_printed_anything(machine: Machine) -> None:
    """The start-up files of the login shell are not blamed. Popen returns -1 here, as paramiko does then."""
    code = "import os, signal as s; s.signal(s.SIGHUP, s.SIG_DFL); os.kill(os.getpid(), s.SIGHUP)"
    machine.shell = [sys.executable, "-c", code]
    with pytest.raises(ConnectError, match="the connection broke"):
        machine.dial()


def test_a_missing_python(machine: Machine) -> None:
    with pytest.raises(AgentError, match="not on the node") as error:
        machine.dial("/opt/no/python3")
    assert "/opt/no/python3" in error.value.cause
    assert machine.files() == []


def test_a_start_that_fails_removes_nothing_of_the_user(machine: Machine) -> None:
    """The agent is installed already, so the script has made nothing that it has to remove."""
    assert ask(machine.dial(), "list") == {"kernels": []}
    file = Path(machine.env["HOME"], ".old")
    file.write_text("the user's")
    with pytest.raises(AgentError, match="not on the node"):
        machine.dial("/opt/no/python3")
    assert file.read_text() == "the user's"


@pytest.mark.parametrize(("status", "printed"), [(91, "too old"), (126, "cannot be run"), (77, "status 77")])
def test_a_python_that_fails(machine: Machine, tmp_path: Path, status: int, printed: str) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexit {status}\n")
    python.chmod(0o700)
    with pytest.raises(AgentError, match=printed):
        machine.dial(str(python))


@pytest.mark.parametrize("sent", [700, 40_000])
def test_an_upload_that_breaks_leaves_nothing_that_is_taken_for_the_agent(
    machine: Machine, sent: int
) -> None:
    machine.break_after = len(install.script(install.pack(), sys.executable)) + sent
    with pytest.raises(ConnectError, match="upload"):
        machine.dial()
    assert machine.files() == []
    machine.break_after = None
    assert ask(machine.dial(), "list") == {"kernels": []}


def linked(machine: Machine) -> None:
    elsewhere = machine.base / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    machine.root.symlink_to(elsewhere)


def somebody_elses(machine: Machine) -> None:
    machine.root.mkdir()
    try:
        os.chown(machine.root, 12345, 12345)
    except PermissionError:
        pytest.skip("only root can make a folder that belongs to somebody else")


def a_file(machine: Machine) -> None:
    machine.root.write_text("")


@pytest.mark.parametrize("trap", [linked, somebody_elses, a_file])
def test_a_folder_that_is_not_ours_is_not_used(machine: Machine, trap: Callable[[Machine], None]) -> None:
    trap(machine)
    with pytest.raises(AgentError, match="no folder"):
        machine.dial()
    if machine.root.is_dir():
        assert machine.files() == []


def test_a_folder_open_to_others_is_closed(machine: Machine) -> None:
    machine.root.mkdir()
    machine.root.chmod(0o777)
    assert ask(machine.dial(), "list") == {"kernels": []}
    assert stat.S_IMODE(machine.root.stat().st_mode) == 0o700


def test_a_full_disk(machine: Machine) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(machine.base)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root can mount a small disk")
    try:
        with pytest.raises(AgentError, match="has room") as error:
            machine.dial()
        assert "/tmp" in error.value.remedy
        assert machine.files() == []
    finally:
        subprocess.run(["umount", str(machine.base)], check=True)


EMPTY = """
for folder in /tmp /var/tmp; do
    mkdir -p "$HOME/before$folder" && mount --bind $folder "$HOME/before$folder" || exit
    mount -t tmpfs -o mode=1777 tmpfs $folder || exit
done
for needed; do
    case $needed in /tmp/* | /var/tmp/*)
        if [ ! -d "$HOME/before$needed" ]; then continue; fi
        mkdir -p "$needed" && mount --bind "$HOME/before$needed" "$needed" || exit
    esac
done
exec sh
"""
"""Mounts an empty /tmp and an empty /var/tmp; of what was there only the folders given as arguments stay."""


def test_the_folder_that_was_found_first_is_remembered(machine: Machine) -> None:
    """Kernels lie there, also when another one would do now. In a mount namespace with folders of its own."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as home:
        machine.env = {"PATH": machine.env["PATH"], "HOME": home}
        machine.shell = ["unshare", "--mount", "sh", "-c", EMPTY, "sh", sys.base_prefix, sys.prefix]
        if subprocess.run(machine.shell, env=machine.env, input=b"", capture_output=True).returncode != 0:
            pytest.skip("only root can have a /tmp of its own")
        pointer = Path(home, ".local/share/jupyter-gpu-kernel", os.uname().nodename)
        assert ask(machine.dial(), "list") == {"kernels": []}
        assert pointer.read_text() == f"/tmp/jupyter-gpu-kernel-{os.getuid()}\n"
        known = Path(home, "known")
        known.mkdir(mode=0o700)
        pointer.write_text(f"{known}\n")
        assert ask(machine.dial(), "list") == {"kernels": []}
        assert (known / install.pack().name).exists() and pointer.read_text() == f"{known}\n"


# ---------------------------------------------------------------------------------------------- what lies there already


def another_file(machine: Machine, path: Path) -> None:
    path.write_bytes(b"x" * len(install.pack().data))


def cut_off(machine: Machine, path: Path) -> None:
    unpack(install.pack(), path)
    module = path / "jupyter_gpu_kernel" / "wire" / "fields.py"
    module.write_bytes(module.read_bytes()[:-1])


def one_module_less(machine: Machine, path: Path) -> None:
    """As a program that cleans /tmp leaves it."""
    unpack(install.pack(), path)
    (path / "jupyter_gpu_kernel" / "agent" / "system" / "loop.py").unlink()


def another_program(machine: Machine, path: Path) -> None:
    unpack(install.pack(), path)
    (path / "__main__.py").write_text(f"open({str(machine.base / 'ran')!r}, 'w')")


def a_link(machine: Machine, path: Path) -> None:
    """What it points to may be changed after a look at it."""
    other = machine.base / "other"
    unpack(install.pack(), other)
    path.symlink_to(other)


def a_linked_module(machine: Machine, path: Path) -> None:
    unpack(install.pack(), path)
    module = path / "jupyter_gpu_kernel" / "wire" / "fields.py"
    module.rename(machine.base / "fields.py")
    module.symlink_to(machine.base / "fields.py")


def somebody_elses_folder(machine: Machine, path: Path) -> None:
    unpack(install.pack(), path)
    try:
        os.chown(path, 12345, 12345)
    except PermissionError:
        pytest.skip("only root can make a folder that belongs to somebody else")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "trap",
    [another_file, cut_off, one_module_less, another_program, a_link, a_linked_module, somebody_elses_folder],
)
def test_what_is_not_the_agent_is_replaced_before_it_runs(
    machine: Machine, trap: Callable[[Machine, Path], None], shell: str
) -> None:
    if shutil.which(SHELLS[shell][0]) is None:
        pytest.skip(f"no {SHELLS[shell][0]} here")
    machine.shell = SHELLS[shell]
    package = install.pack()
    machine.root.mkdir(mode=0o700)
    path = machine.root / package.name
    trap(machine, path)
    assert ask(machine.dial(), "list") == {"kernels": []}
    assert machine.sources() == files_of(package) and not path.is_symlink()
    assert not any(one.is_symlink() for one in path.rglob("*")) and not (machine.base / "ran").exists()
    assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == (os.getuid(), 0o700)
    assert machine.files() == [package.name, "id"]
    assert ask(machine.dial(), "list") == {"kernels": []}
    assert machine.streams[1].written < 10_000, "uploaded again"


def test_a_node_without_sha256sum(machine: Machine, tmp_path: Path) -> None:
    """Python computes it there."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in [
        "sh",
        "id",
        "uname",
        "mkdir",
        "rm",
        "chmod",
        "dd",
        "head",
        "wc",
        "mv",
        "touch",
        "find",
        "sort",
        "xargs",
        "cat",
    ]:
        (programs / name).symlink_to(str(shutil.which(name)))
    machine.env["PATH"] = str(programs)
    machine.root.mkdir(mode=0o700)
    another_file(machine, machine.root / install.pack().name)
    assert ask(machine.dial(), "list") == {"kernels": []}
    assert machine.sources() == files_of(install.pack())


def test_below_a_folder_that_others_can_write_to_nothing_is_installed(machine: Machine) -> None:
    """They could put a folder of their own in its place. With the sticky bit, as in /tmp, they cannot."""
    for mode, fits in ((0o777, False), (0o770, True), (0o1777, True)):
        machine.base.chmod(mode)
        if fits:
            assert ask(machine.dial(), "list") == {"kernels": []}
            shutil.rmtree(machine.root)
        else:
            with pytest.raises(AgentError, match="others can write"):
                machine.dial()
            assert not machine.root.exists()


def test_a_group_of_others_may_not_write_above_it(machine: Machine) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a folder to any group")
    os.chown(machine.base, -1, 12345)
    machine.base.chmod(0o770)
    with pytest.raises(AgentError, match="others can write"):
        machine.dial()
