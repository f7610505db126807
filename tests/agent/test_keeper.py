"""A keeper with a real ipykernel, as the agent starts it: once, in its own folder, whatever happens around it."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List

import pytest
from keepers import AGENT, Hub, Place
from waiting import DEADLINE, eventually, readable

from jupyter_gpu_kernel.agent.refused import Refused
from jupyter_gpu_kernel.agent.story import read_story
from jupyter_gpu_kernel.wire.messages import keeper_message
from jupyter_gpu_kernel.wire.stream.frames import MAGIC, Frame, FrameReader, Kind, json_frame


def test_two_attaches_start_one_keeper(place: Place) -> None:
    """As when a link breaks while the first of them starts it."""
    with ThreadPoolExecutor(2) as pool:
        opened = list(pool.map(lambda _: place.handlers.open("k1", {"create": {"gpus": 0}}), range(2)))
    assert [kernel_id for kernel_id, _ in opened] == ["k1", "k1"]
    hub = Hub(opened[1][1])
    pid = hub.run("import os; print(os.getpid())").strip()
    starts = [entry for entry in read_story(place.path / "stories" / "k1.jsonl") if entry["event"] == "start"]
    assert [str(entry["pid"]) for entry in starts] == [pid]
    for _, sock in opened:
        sock.close()


def test_what_lies_in_its_folder(place: Place) -> None:
    """Nothing that others could read, no settings, and in the end nothing at all; the environment is right."""
    setup = ["export MARK='set up'", "echo noise"]
    hub = place.start("k2", env={"SECRET": "s3cret"}, setup=setup, cwd=str(place.path))
    printed = hub.run("import os; print(os.environ['SECRET'].upper(), os.environ['MARK'], os.getcwd())")
    assert printed == f"S3CRET set up {place.path}\n"
    files = list(place.folder("k2").iterdir())
    assert "settings" not in [path.name for path in files]
    for path in [place.folder("k2"), *files]:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            assert not stat.S_IMODE(path.lstat().st_mode) & 0o077, path
            assert path.is_dir() or b"s3cret" not in path.read_bytes()
    hub.sock.close()
    assert place.handlers.handle({"do": "stop", "kernel": "k2"}) == {"ok": True}
    assert not place.folder("k2").exists()
    assert "s3cret" not in (place.path / "stories" / "k2.jsonl").read_text()


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"cwd": "/no/such/folder"}, "cwd"),
        ({"python": "/no/python"}, "keeper"),
        ({"setup": ["exit 7"]}, "setup"),
    ],
)
def test_a_start_that_is_refused_leaves_nothing(place: Place, settings: Dict[str, Any], code: str) -> None:
    with pytest.raises(Refused) as refused:
        place.start("k3", **settings)
    assert refused.value.code == code
    assert not place.folder("k3").exists()


def test_a_full_disk_ends_no_kernel(place: Place) -> None:
    """Nowhere to write the story or what the process says on its own stderr: cells run all the same."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(place.path)]
    if shutil.which("mount") is None or subprocess.call(mount, stderr=subprocess.DEVNULL) != 0:
        pytest.skip("only root can mount a small disk")
    try:
        hub = place.start("k4")
        assert hub.run("print('before')") == "before\n"
        with pytest.raises(OSError), open(str(place.path / "ballast"), "wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        code = "import os\ntry: os.write(2, b'x' * 100000)\nexcept OSError: pass\nprint('after')"
        assert hub.run(code).endswith("after\n")
        keeper = hub.keeper
        os.kill(keeper, signal.SIGTERM)  # is told in the story
        assert hub.run("print('still there')") == "still there\n"
        hub.sock.close()
        place.clear()
        assert not place.folder("k4").exists()
    finally:
        subprocess.check_call(["umount", "-l", str(place.path)])


def test_a_stopped_keeper_holds_up_nobody(place: Place) -> None:
    """More than its socket takes is sent to it; the attach process answers all the same."""
    hub = place.start("k5")
    keeper = hub.keeper
    attach = place.attach()
    assert attach.stdin and attach.stdout
    frames = FrameReader()
    seen: List[Frame] = []

    def until(kind: Kind, number: int) -> None:
        while not any(frame.kind is kind and frame.number == number for frame in seen):
            assert readable(attach.stdout.fileno()), f"no {kind.name} came"  # type: ignore[union-attr]
            seen.extend(frames.feed(os.read(attach.stdout.fileno(), 1 << 16)))  # type: ignore[union-attr]

    try:
        attach.stdin.write(
            json_frame(Kind.REQUEST, {"do": "open", "kernel": "k5", "attachment": 7}, number=1).encode()
        )
        until(Kind.REPLY, 1)
        os.kill(keeper, signal.SIGSTOP)
        for number in range(1, 60):
            attach.stdin.write(Frame(Kind.DATA, 7, number, 0, b"x" * 65536).encode())
        attach.stdin.write(Frame(Kind.PING, number=9).encode())
        until(Kind.PONG, 9)
    finally:
        os.kill(keeper, signal.SIGCONT)
        attach.stdin.close()
        attach.wait(DEADLINE)
        attach.stdout.close()
        hub.sock.close()


@pytest.mark.parametrize("first", [b"", Frame(Kind.PING, number=1).encode()])
def test_an_attach_that_nobody_talks_to_ends(place: Place, first: bytes) -> None:
    """The hub pings every few seconds; who hears nothing is a leftover of a link that is dead."""
    silence = "from jupyter_gpu_kernel.agent.mux import attach; attach.SILENCE = 1\n"
    attach = place.attach(silence + AGENT.format(["attach"]))
    assert attach.stdin and attach.stdout
    assert attach.stdout.read(len(MAGIC)) == MAGIC
    attach.stdin.write(first)
    attach.wait(DEADLINE)
    attach.stdin.close()
    attach.stdout.close()


def test_a_hub_that_breaks_the_rules_loses_its_connection_only(place: Place) -> None:
    hub = place.start("k6")
    assert hub.run("x = 1; print(x)") == "1\n"
    hub.sock.sendall(b"\xff" * 64)
    while hub.sock.recv(1 << 16):
        pass
    hub.sock.close()
    list_ = {"do": "list"}
    eventually(lambda: not place.handlers.handle(list_)["kernels"][0]["attached"], "the connection's end")
    again = place.start("k6")
    assert again.run("print(x)") == "1\n"
    again.sock.close()


def test_an_end_in_a_folder_that_was_cleaned(place: Place) -> None:
    """By those who clean /tmp: what is left of it goes, too."""
    hub = place.start("k8")
    hub.run("1")
    for name in ("keeper", "story", "lock"):
        (place.folder("k8") / name).unlink()
    hub.tell(keeper_message(do="stop", why="enough"))
    hub.leave()
    eventually(lambda: not place.folder("k8").exists(), "the folder's end")


def test_a_stop_overtakes_a_restart(place: Place) -> None:
    """The process that a restart kills is not gone at once; what is asked meanwhile counts."""
    hub = place.start("k7")
    hub.run("1")
    hub.tell(keeper_message(do="restart"), keeper_message(do="stop", why="enough"))
    hub.leave()
    eventually(lambda: not place.folder("k7").exists(), "the folder's end, and no other start")
    starts = [entry for entry in read_story(place.path / "stories" / "k7.jsonl") if entry["event"] == "start"]
    assert len(starts) == 1
