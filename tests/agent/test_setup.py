"""The user's set-up lines: their output, what they leave running, what others can see of them."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path
from typing import List

import pytest
from keepers import Place
from runtimes import RUNTIME
from waiting import eventually

from jupyter_gpu_kernel.agent.exit import leftovers
from jupyter_gpu_kernel.agent.exit.descendants import SETUP, find_descendants
from jupyter_gpu_kernel.agent.keeper.setup import trim
from jupyter_gpu_kernel.agent.refused import Refused
from jupyter_gpu_kernel.wire.messages import keeper_message
from jupyter_gpu_kernel.wire.stream.frames import Kind, json_frame

SERVER = "sleep 600 &"


def servers(place: Place, kernel_id: str) -> List[int]:
    """What the set-up lines of this kernel left running."""
    return [process.pid for process in find_descendants(kernel_id, SETUP, str(place.path))]


def printed_by_setup(place: Place, kernel_id: str) -> List[str]:
    """What the story has of the set-up lines."""
    return [entry["text"] for entry in place.story(kernel_id, "setup")]


def test_a_server_in_the_background_holds_nothing_of_ours(place: Place) -> None:
    """No pipe, lock or socket; it outlives a restart of the kernel, and ends with it."""
    hub = place.start("s1", setup=[SERVER])
    assert hub.run("print(1)") == "1\n"
    (server,) = servers(place, "s1")
    held = {name: os.readlink(f"/proc/{server}/fd/{name}") for name in os.listdir(f"/proc/{server}/fd")}
    log = str(place.folder("s1") / "log")
    assert held == {"0": os.devnull, "1": log, "2": log}
    hub.tell(keeper_message(do="restart"))
    eventually(lambda: len(place.story("s1", "start")) == 2, "a restart")
    assert servers(place, "s1") == [server]
    hub.sock.close()
    assert place.handlers.handle({"do": "stop", "kernel": "s1"}) == {"ok": True}
    assert servers(place, "s1") == []


def test_a_server_whose_keeper_was_killed_is_a_leftover(place: Place) -> None:
    hub = place.start("s2", setup=[SERVER])
    kernel, keeper = int(hub.run("import os; print(os.getpid())")), hub.keeper
    assert place.handlers.handle({"do": "leftovers"})["leftovers"] == []
    os.kill(kernel, signal.SIGSTOP)  # else it would have another keeper start
    os.kill(keeper, signal.SIGKILL)
    os.kill(kernel, signal.SIGKILL)
    eventually(
        lambda: kernel not in [one.pid for one in find_descendants(root=str(place.path))], "the kernel's end"
    )
    found = eventually(lambda: place.handlers.handle({"do": "leftovers"})["leftovers"], "a leftover")
    assert [one["pid"] for one in found] == servers(place, "s2")
    assert eventually(lambda: not place.handlers.handle({"do": "list"})["kernels"], "an end of its folder")
    assert place.handlers.handle({"do": "end_leftovers", "leftovers": found})["ended"] == found
    assert servers(place, "s2") == []
    hub.sock.close()


SCAN = """
for file in /proc/[0-9]*/cmdline; do
    mapfile -d '' -t words < "$file"
    case "${words[*]}" in *MARK*) echo "seen in $file: ${words[*]}";; esac
done 2>/dev/null
"""


def test_nothing_of_settings_and_lines_is_in_a_command_line_or_a_readable_file(place: Place) -> None:
    """The lines look themselves, while they run; then the kernel does."""
    mark = f"s3cret{uuid.uuid4().hex}"
    readable = f'find {place.path} -perm /077 -type f -exec grep -l {mark[:8]}"{mark[8:]}" {{}} +'
    lines = [f"export TOKEN={mark}", SCAN.replace("MARK", mark), readable, "echo looked"]
    hub = place.start("s3", setup=lines, env={"OTHER": mark})
    assert printed_by_setup(place, "s3") == ["looked"]
    look = (
        f"import pathlib; mark = {mark[:8]!r} + {mark[8:]!r}\n"
        "files = pathlib.Path('/proc').glob('[0-9]*/cmdline')\n"
        "print([str(path) for path in files if mark in path.read_text(errors='replace')])"
    )
    assert hub.run(look) == "[]\n"
    files = [path for path in place.path.rglob("*") if path.is_file()]
    assert not [path for path in files if mark.encode() in path.read_bytes()]
    hub.sock.close()


def test_the_lines_run_in_a_login_shell_that_reads_nothing(place: Place) -> None:
    lines = [
        "read -r line; echo status $? line $line",
        "shopt -q login_shell && echo login",
        "ulimit -c 0; umask 027; cd /",
        "set -- a b; MARK=1; export MARK",
    ]
    hub = place.start("s4", setup=lines)
    assert printed_by_setup(place, "s4") == ["status 1 line", "login"]
    environ = "os.environ['MARK'], [name for name in os.environ if 'SETUP' in name]"
    code = f"import os; print(os.getcwd(), os.umask(0o077), {environ})"
    assert hub.run(code) == "/ 23 1 []\n"
    hub.sock.close()


def test_what_the_lines_print_is_bounded_and_inert(place: Place) -> None:
    lines = [
        r"printf '\033[2J\007first\rline\n'",
        "for i in $(seq 100); do echo line $i; done",
        "printf 'x%.0s' $(seq 1000)",
    ]
    place.start("s5", setup=lines).sock.close()
    lines_shown = printed_by_setup(place, "s5")
    assert (
        len(lines_shown) == 21
        and "are left out" in lines_shown[0]
        and lines_shown[1:-1] == [f"line {n}" for n in range(82, 101)]
    )
    assert lines_shown[-1] == "x" * 300
    eventually(lambda: place.story("s5", "start"), "the kernel's start")
    events = [entry["event"] for entry in place.story("s5")]
    assert events.index("setup") < events.index("start")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("echo no such module >&2; exit 7", ["status 7", "no such module"]),
        ("echo bye; exit 0", ["status 0", "bye"]),
        ("if", ["syntax error"]),
    ],
)
def test_lines_that_fail_are_reported_and_leave_nothing(place: Place, line: str, words: List[str]) -> None:
    with pytest.raises(Refused) as refused:
        place.start("s6", setup=[SERVER, r"printf 'a\033b\n'", line])
    assert refused.value.code == "setup"
    for word_ in [*words, "ab"]:
        assert word_ in str(refused.value)
    assert "ab" in printed_by_setup(place, "s6") and place.story("s6")[-1]["event"] == "end"
    assert words[-1] in place.story("s6")[-1]["text"]
    assert not place.folder("s6").exists() and servers(place, "s6") == []


def test_a_start_goes_on_when_its_attach_is_killed(place: Place) -> None:
    """Whoever comes next waits for it, and the lines run once."""
    begun, go, count = (place.path / name for name in ("begun", "go", "count"))
    lines = [f"echo 1 >> {count}; touch {begun}; while [ ! -e {go} ]; do sleep 0.02; done"]
    request = {"do": "open", "kernel": "s7", "attachment": 1, "create": {"gpus": 0, "setup": lines}}
    attach = place.attach()
    assert attach.stdin and attach.stdout
    attach.stdin.write(json_frame(Kind.REQUEST, request, number=1).encode())
    eventually(begun.exists, "the set-up lines")
    attach.kill()
    attach.wait()
    attach.stdin.close()
    attach.stdout.close()
    (state,) = place.handlers.handle({"do": "list"})["kernels"]
    assert (state["id"], state["state"]) == ("s7", "starting")
    go.touch()
    hub = place.start("s7", setup=lines)
    assert hub.run("print(2)") == "2\n"
    assert count.read_text() == "1\n"
    hub.sock.close()


def test_a_folder_in_use_is_removed_by_nobody_else(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that is given up, or a look at all folders, while the keeper lives."""
    monkeypatch.setattr(leftovers, "UNUSED_TIMEOUT", 0.1)
    hub = place.start("s8")
    pid = hub.run("import os; print(os.getpid())")
    found = leftovers.Leftovers(RUNTIME, place.handlers.root)
    for names in (["keeper"], ["lock"]):  # one after the other is cleaned away
        for name in names:
            (place.folder("s8") / name).unlink()
        os.utime(str(place.folder("s8")), (0, 0))
        found.remove_unused("s8")
        assert not found.remove_stale("s8")
        assert place.folder("s8").exists()
    assert hub.run("import os; print(os.getpid())") == pid
    hub.tell(keeper_message(do="stop", why="enough"))
    hub.leave()
    eventually(lambda: not place.folder("s8").exists(), "the folder's end")


def test_a_keeper_looks_after_its_log(place: Place) -> None:
    place.start("s9", setup=["head -c 3000000 /dev/zero | tr '\\0' x"], gpu_timeout=5).sock.close()
    log = place.folder("s9") / "log"
    eventually(lambda: log.stat().st_size < 1 << 20, "a smaller log")


def test_a_log_that_grows_for_ever_is_emptied(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with open(log, "ab") as file:
        file.write(b"x" * 1000)
        file.flush()
        trim(log)
        assert log.stat().st_size == 1000
        file.write(b"x" * (1 << 21))
        file.flush()
        trim(log)
        file.write(b"after")
        file.flush()
        assert log.read_bytes() == b"after"
    trim(tmp_path / "none")
