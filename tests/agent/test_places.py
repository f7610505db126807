"""The agent's folder, the stories in it, and leaving the terminal: whose files, which modes, what a full disk does."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runtimes import RUNTIME
from waiting import eventually

from jupyter_gpu_kernel.agent.mux.handlers import RequestHandlers
from jupyter_gpu_kernel.agent.paths import FolderError, Root, touch
from jupyter_gpu_kernel.agent.refused import Refused
from jupyter_gpu_kernel.agent.story import KEEP_DAYS, Story, forget_old_stories, read_story
from jupyter_gpu_kernel.wire.stream.frames import FrameReader, Kind, json_frame


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_are_ours_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    root = Root(tmp_path)
    folder = root.make_kernel("abc-1")
    assert [mode(path) for path in (tmp_path, folder, folder.parent)] == [0o700] * 3
    assert root.kernels() == ["abc-1"]
    assert root.make_kernel("abc-1") == folder


def test_a_link_is_a_trap(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    with pytest.raises(FolderError, match="another user"):
        Root(tmp_path / "link")


def test_somebody_elses_folder(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can make a folder that belongs to somebody else")
    os.chown(str(tmp_path), 12345, 12345)
    with pytest.raises(FolderError, match="another user"):
        Root(tmp_path)


@pytest.mark.parametrize("name", ["k", "stories"])
def test_a_folder_in_it_that_is_not_ours(tmp_path: Path, name: str) -> None:
    """As others could have put there while it was open to them."""
    (tmp_path / "there").mkdir()
    (tmp_path / name).symlink_to(tmp_path / "there")
    with pytest.raises(FolderError, match="another user"):
        Root(tmp_path)
    (tmp_path / name).unlink()
    root = Root(tmp_path)
    (tmp_path / name).mkdir(mode=0o755)
    root.make_kernel("abc-1")
    assert mode(tmp_path / name) == 0o700
    if os.getuid() == 0:
        os.chown(str(tmp_path / name), 12345, 12345)
        for look in (lambda: Root(tmp_path), lambda: root.make_kernel("abc-2")):
            with pytest.raises(FolderError, match="another user"):
                look()


def test_others_cannot_replace_it(tmp_path: Path) -> None:
    folder = tmp_path / "open" / "root"
    folder.mkdir(parents=True, mode=0o700)
    (tmp_path / "link").symlink_to(folder.parent)
    for parent_mode in (0o700, 0o755, 0o1777):
        folder.parent.chmod(parent_mode)
        Root(folder)
    folder.parent.chmod(0o777)
    for path in (folder, tmp_path / "link" / "root"):
        with pytest.raises(FolderError, match="others can write"):
            Root(path)


@pytest.mark.parametrize("kernel_id", ["", "..", "../x", "a/b", "a b", ".x", "x\0"])
def test_an_id_is_no_path(tmp_path: Path, kernel_id: str) -> None:
    root = Root(tmp_path)
    for place in (root.kernel, root.story, root.make_kernel):
        with pytest.raises(FolderError):
            place(kernel_id)


def test_what_is_used_is_not_old(tmp_path: Path) -> None:
    """Cleaners of /tmp look at the times of files, folders and sockets."""
    folder = Root(tmp_path).make_kernel("abc-1")
    (folder / "lock").touch()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(folder / "keeper"))
        paths = [folder, folder / "lock", folder / "keeper"]
        for path in paths:
            os.utime(path, (0, 0))
        touch(folder, tmp_path / "no such file")
        assert min(min(path.stat().st_atime, path.stat().st_mtime) for path in paths) > time.time() - 3600


def test_a_folder_is_known_by_a_number_that_is_made_once_and_that_others_cannot_read(tmp_path: Path) -> None:
    root = Root(tmp_path)
    number = root.identity(RUNTIME.new_id)
    assert len(number) == 32 and Root(tmp_path).identity(RUNTIME.new_id) == number
    assert [path.name for path in tmp_path.iterdir()] == ["id"]
    assert stat.S_IMODE((tmp_path / "id").stat().st_mode) == 0o600
    assert RequestHandlers(RUNTIME, root).identity() == number


def test_a_kernel_of_a_session_with_a_tmp_of_its_own_is_distinguished_from_one_that_has_ended(
    tmp_path: Path,
) -> None:
    command = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        "echo; read end",
        "serve",
        "abc-1",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdin is not None and keeper.stdout is not None
        if not keeper.stdout.readline():
            pytest.skip("no user namespaces on this machine")
        handlers = RequestHandlers(RUNTIME, Root(tmp_path))
        with pytest.raises(Refused, match=f"a /tmp of its own(.|\n)*process {keeper.pid}$"):
            handlers.open("abc-1", {})
        with pytest.raises(Refused, match="there is no kernel abc-2"):
            handlers.open("abc-2", {})


def test_a_story(tmp_path: Path) -> None:
    story = Story(tmp_path / "s.jsonl", RUNTIME.time)
    story.tell("start", "began", pid=1)
    with open(str(story.path), "ab") as file:
        file.write(b'{"torn": \xff\n')
    story.tell("end", "ended\nin two lines")
    reported = read_story(story.path)
    assert [(entry["event"], entry["text"]) for entry in reported] == [
        ("start", "began"),
        ("end", "ended\nin two lines"),
    ]
    assert reported[0]["pid"] == 1
    assert mode(story.path) == 0o600
    assert read_story(tmp_path / "none.jsonl") == []
    with story.path.open("a") as file:
        file.write("[" * 100_000 + "\n7\n[]\n")
    assert read_story(story.path) == reported


def test_of_a_long_story_the_end_is_returned(tmp_path: Path) -> None:
    """As of a kernel that is sent SIGTERM every minute, for weeks."""
    root = Root(tmp_path)
    root.make_kernel("abc-1").rmdir()  # it has ended
    story = Story(root.story("abc-1"), RUNTIME.time)
    story.tell("sigterm", "SIGTERM from root")
    story.path.write_bytes(story.path.read_bytes() * 80_000)
    story.tell("drop", "the last one")
    answer = RequestHandlers(RUNTIME, root).handle({"do": "story", "kernel": "abc-1"})
    reader = FrameReader(greeting=False)
    (frame,) = reader.feed(json_frame(Kind.REPLY, answer, number=1).encode())
    assert frame.json()["story"][-1]["text"] == "the last one"


def test_kernels_that_have_ended_are_found_by_the_beginning_of_their_ids(tmp_path: Path) -> None:
    root = Root(tmp_path)
    for kernel_id in ("abc-1", "abc-2", "b-1"):
        root.make_kernel(kernel_id).rmdir()
        Story(root.story(kernel_id), RUNTIME.time).tell("end", "it has ended")
    handlers = RequestHandlers(RUNTIME, root)
    found = handlers.handle({"do": "stories", "kernel": "abc"})["kernels"]
    assert found == [{"id": "abc-1"}, {"id": "abc-2"}] and root.kernels() == []
    assert handlers.handle({"do": "stories", "kernel": "c"}) == {"kernels": []}


def test_a_story_that_cannot_be_written_ends_nothing() -> None:
    story = Story(Path("/dev/full"), RUNTIME.time)
    assert story.tell("start", "began")["text"] == "began"
    assert story.unwritten == 1


def test_a_line_that_the_disk_did_not_take_whole_tears_no_other(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    story = Story(tmp_path / "story.jsonl", RUNTIME.time)
    story.tell("start", "once upon a time")
    room = story.path.stat().st_size + 20
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        story.tell("drop", "a disk became full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    story.tell("end", "they lived happily")
    assert [entry["event"] for entry in read_story(story.path)] == ["start", "end"]
    assert story.unwritten == 1


def test_old_stories_go(tmp_path: Path) -> None:
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    for path in (old, new):
        Story(path, RUNTIME.time).tell("start", "began")
    long_ago = time.time() - (KEEP_DAYS + 1) * 86400
    os.utime(str(old), (long_ago, long_ago))
    forget_old_stories(tmp_path, RUNTIME.time())
    assert [entry.name for entry in tmp_path.iterdir()] == ["new.jsonl"]
    forget_old_stories(tmp_path / "none", RUNTIME.time())


DETACH = """
import sys
from pathlib import Path
from jupyter_gpu_kernel.agent.system.process_control import detach
def work():
    {work}
detach(work, Path(sys.argv[1]))
"""


def test_nobody_waits_for_a_daemon_and_its_errors_are_in_the_log(tmp_path: Path) -> None:
    """The starter returns, and its pipes close, while the other goes on: until it may."""
    go, log = tmp_path / "go", tmp_path / "log"
    wait = f"import time; p = Path({str(go)!r})\n    while not p.exists(): time.sleep(0.01)\n    1 / 0"
    command = [sys.executable, "-c", DETACH.format(work=wait), str(log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    go.touch()
    eventually(lambda: log.exists() and "ZeroDivisionError" in log.read_text(), "the error in the log")


def test_what_serves_the_connection_needs_no_zmq() -> None:
    """It runs on whatever Python a kernelspec names, so that it can say what that one lacks."""
    code = "import sys; sys.modules['zmq'] = None; import jupyter_gpu_kernel.agent.mux.attach"
    subprocess.run([sys.executable, "-c", code], check=True)
