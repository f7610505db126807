"""Pinned code: real repositories, and kernels that work in a checkout of one at a commit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List

import pytest
from keepers import Hub, Place
from repositories import Repository
from runtimes import RUNTIME
from waiting import eventually

from jupyter_gpu_kernel.agent.core.code_request import is_only_request, requested_revision
from jupyter_gpu_kernel.agent.in_kernel.pinned_imports import redirect
from jupyter_gpu_kernel.agent.paths import Root
from jupyter_gpu_kernel.agent.pinned_code.checkout import Checkouts, Pin
from jupyter_gpu_kernel.agent.pinned_code.git import PinError
from jupyter_gpu_kernel.agent.refused import Refused
from jupyter_gpu_kernel.wire import revisions
from jupyter_gpu_kernel.wire.messages import Channel, Message, keeper_message

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here"),
]
IMPORT = "import lib, os; print(lib.VALUE, os.getcwd())"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def repository(home: Path) -> Repository:
    return Repository(home / "project")


class SlowGit:
    """A git that waits before it checks out files, until `go_on`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._waits, self._go_on = folder / "waits", folder / "go_on"
        script_in(
            folder,
            f'case "$*" in *checkout*) : > {self._waits}; until [ -e {self._go_on} ]; do sleep 0.02; done;; esac',
        )

    def until_it_waits(self) -> None:
        eventually(self._waits.exists, "git")

    def go_on(self) -> None:
        self._go_on.touch()


def script_in(folder: Path, lines: str) -> None:
    """A `git` that runs these lines of a shell script before the real one."""
    real = shutil.which("git")
    (folder / "git").write_text(f'#!/bin/sh\n{lines}\nexec {real} "$@"\n')
    (folder / "git").chmod(0o755)


@pytest.fixture
def slow_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlowGit:
    git = SlowGit(tmp_path / "slow")
    monkeypatch.setenv("PATH", str(tmp_path / "slow"), prepend=os.pathsep)
    return git


@pytest.fixture
def checkouts(home: Path, tmp_path: Path) -> Checkouts:
    (tmp_path / "root").mkdir(mode=0o700)
    return Checkouts(RUNTIME, Root(tmp_path / "root"))


def pinned(home: Path) -> List[Path]:
    """What is left of all checkouts."""
    return sorted((home / ".local/share/jupyter-gpu-kernel-code").glob("*/*"))


def trees(home: Path) -> List[str]:
    """The checkouts that are left."""
    return [str(path / "project") for path in pinned(home)]


def is_idle(message: Message) -> bool:
    """Whether the keeper says so."""
    return message.channel is Channel.KEEPER and message.content().get("state") == "idle"


def stop(place: Place, hub: Hub, kernel_id: str) -> None:
    hub.sock.close()
    assert place.handlers.handle({"do": "stop", "kernel": kernel_id}) == {"ok": True}


# ------------------------------------------------------------------------------------------ texts


@pytest.mark.parametrize(
    ("code", "revision", "only"),
    [
        ("%gpu code v1.0", "v1.0", True),
        ("\n# pin it\n%gpu  code main@{2 days ago}  # then\n\n# end", "main@{2 days ago}", True),
        ("%gpu code HEAD~2\nimport lib", "HEAD~2", False),
        ("import lib\n%gpu code HEAD", "", False),
        ("%gpu code", "", False),
        ("%gpu status", "", False),
        ("", "", False),
    ],
)
def test_a_cell_that_asks_for_code(code: str, revision: str, only: bool) -> None:
    assert (requested_revision(code), is_only_request(code)) == (revision, only)


@pytest.mark.parametrize(
    "revision", ["", " ", "--output=/etc/passwd", "-q", "a\nb", "a\x1b[31m", "a\0b", "x" * 201]
)
def test_what_is_no_revision(revision: str, checkouts: Checkouts, home: Path) -> None:
    assert revisions.fault(revision)
    with pytest.raises(PinError, match="is not a revision"):
        checkouts.make("k", str(home.parent), revision)
    assert not revisions.fault("feature/a+b@{yesterday}")


# ------------------------------------------------------------------------------------------ checkouts


def test_an_unchanged_checkout_is_removed_a_changed_one_is_kept(
    checkouts: Checkouts, repository: Repository, home: Path
) -> None:
    """Python's own files are no change; an ignored checkpoint, a new commit and an edit are."""
    first = repository.git("rev-parse", "HEAD")
    (repository.path / ".gitmodules").touch()
    repository.commit("two")
    repository.edit("dirty")
    (repository.path / "new.py").write_text("")
    pin = checkouts.make("k1", str(repository.path / "sub"), first[:9])
    assert (pin.commit, pin.subject, pin.repository) == (first, "value one", str(repository.path))
    assert (pin.changes, pin.submodules) == (2, False)
    assert pin.cwd == pin.tree + "/sub"
    assert (Path(pin.tree) / "lib.py").read_text() == "VALUE = 'one'\n"
    assert trees(home) == [pin.tree]
    assert Path(pin.tree).parent.stat().st_mode & 0o777 == 0o700
    (Path(pin.tree) / "__pycache__").mkdir()
    (Path(pin.tree) / "__pycache__" / "lib.cpython-38.pyc").write_text("")
    assert checkouts.remove(pin) == ""
    assert pinned(home) == []
    for change in (
        "touch model.ckpt",
        "echo >> lib.py",
        "git checkout -q -b mine && git commit -q --allow-empty -m x",
    ):
        pin = checkouts.make("k1", str(repository.path), "HEAD")
        assert pin.submodules
        subprocess.run(["sh", "-c", change], cwd=pin.tree, check=True)
        assert "in it" in checkouts.remove(pin)
        assert os.path.isdir(pin.tree)
        shutil.rmtree(pin.tree)
        assert checkouts.remove(pin) == ""
    assert pinned(home) == []


def test_hooks_do_not_run(checkouts: Checkouts, repository: Repository, tmp_path: Path) -> None:
    for name in ("post-checkout", "post-index-change", "reference-transaction"):
        hook = repository.path / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        hook.chmod(0o755)
    assert checkouts.remove(checkouts.make("k1", str(repository.path), "HEAD")) == ""
    assert not (tmp_path / "ran").exists()


def test_git_of_another_repository_in_the_environment(
    checkouts: Checkouts, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert checkouts.make("k1", str(repository.path), "HEAD").repository == str(repository.path)


def test_what_cannot_be_pinned(
    checkouts: Checkouts, repository: Repository, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PinError, match=r"git finds no repository .*; git says: fatal: not a git"):
        checkouts.make("k1", str(home), "HEAD")
    with pytest.raises(PinError, match=r"there is no commit 'nope' in .*; git says: fatal: "):
        checkouts.make("k1", str(repository.path), "nope")
    (repository.path / "later").mkdir()
    with pytest.raises(PinError, match="there is no folder later/ in commit"):
        checkouts.make("k1", str(repository.path / "later"), "HEAD")
    assert pinned(home) == []
    with monkeypatch.context() as patch:
        (home / "programs").mkdir()
        script_in(home / "programs", 'case "$*" in *" log "*) exit 3;; esac')
        patch.setenv("PATH", str(home / "programs"), prepend=os.pathsep)
        with pytest.raises(PinError, match="git log failed"):
            checkouts.make("k1", str(repository.path), "HEAD")
    assert pinned(home) == []
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(PinError, match=r"there is no git on .*: install it"):
        checkouts.make("k1", str(repository.path), "HEAD")


def test_an_old_git(
    checkouts: Checkouts, repository: Repository, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As git 1.8, this one knows no worktrees, and prints options that it does not know."""
    (tmp_path / "old").mkdir()
    script_in(
        tmp_path / "old",
        'case "$*" in\n'
        "*\\ worktree\\ *) echo \"git: 'worktree' is not a git command.\" >&2; exit 1;;\n"
        "*git-common-dir*) echo --git-common-dir; exit;;\n"
        "esac",
    )
    monkeypatch.setenv("PATH", str(tmp_path / "old"), prepend=os.pathsep)
    first = repository.git("rev-parse", "HEAD")
    repository.commit("two")
    pin = checkouts.make("k1", str(repository.path), first)
    assert (Path(pin.tree) / "lib.py").read_text() == "VALUE = 'one'\n"
    assert checkouts.remove(pin) == ""
    assert pinned(home) == []


def test_the_checkout_has_the_settings_and_tags_of_the_repository(
    checkouts: Checkouts, repository: Repository, home: Path
) -> None:
    """Such as filters, which change files when they are checked out; and nothing is written into that repository."""
    repository.git("tag", "v1.0")
    repository.git("config", "filter.rename.smudge", "sed s/VALUE/NAME/")
    repository.git("config", "filter.rename.clean", "sed s/NAME/VALUE/")
    repository.git("config", "core.worktree", str(repository.path))  # as in a submodule
    (repository.path / ".git" / "info").mkdir(exist_ok=True)
    (repository.path / ".git" / "info" / "attributes").write_text("lib.py filter=rename\n")
    before = sorted(repository.path.rglob("*"))
    pin = checkouts.make("k1", str(repository.path), "v1.0")
    assert sorted(repository.path.rglob("*")) == before
    assert (Path(pin.tree) / "lib.py").read_text() == "NAME = 'one'\n"
    described = ["git", "describe", "--tags"]
    assert subprocess.check_output(described, cwd=pin.tree, text=True) == "v1.0\n"
    assert checkouts.remove(pin) == ""


@pytest.mark.parametrize("source", ["worktree", "shallow"])
def test_a_worktree_of_gits_and_a_shallow_clone(
    source: str, checkouts: Checkouts, repository: Repository, home: Path, tmp_path: Path
) -> None:
    repository.commit("two")
    folder = str(tmp_path / "source")
    if source == "worktree":
        repository.git("worktree", "add", "--quiet", "--detach", folder)
    else:
        repository.git("clone", "--quiet", "--depth", "1", repository.path.as_uri(), folder)
    pin = checkouts.make("k1", folder, "HEAD")
    assert pin.repository == folder and (Path(pin.tree) / "lib.py").read_text() == "VALUE = 'two'\n"
    assert checkouts.remove(pin) == "" and pinned(home) == []


def test_many_kernels_at_once(checkouts: Checkouts, repository: Repository, home: Path) -> None:
    """As when a sweep is started."""
    with ThreadPoolExecutor(8) as pool:
        pins = list(pool.map(lambda n: checkouts.make(f"k{n}", str(repository.path), "HEAD"), range(8)))
        assert trees(home) == sorted(pin.tree for pin in pins)
        assert list(pool.map(checkouts.remove, pins)) == [""] * 8
    assert pinned(home) == []


def test_two_that_remove_the_same_checkout(checkouts: Checkouts, repository: Repository, home: Path) -> None:
    """Where a node is reached by two routes, both ask it to remove what is left over."""
    for number in range(5):
        pin = checkouts.make(f"k{number}", str(repository.path), "HEAD")
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(checkouts.remove, [pin] * 4)) == [""] * 4
    assert pinned(home) == []


def test_a_home_that_cannot_be_written(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/proc/none")
    (tmp_path / "root").mkdir(mode=0o700)
    checkouts = Checkouts(RUNTIME, Root(tmp_path / "root"))
    pin = checkouts.make("k1", str(repository.path), "HEAD")
    assert pin.tree == f"{tmp_path}/root/code/k1.1/project"
    assert checkouts.remove(pin) == ""


def test_leftovers_of_kernels_that_are_gone(
    checkouts: Checkouts, repository: Repository, home: Path, tmp_path: Path
) -> None:
    """Of this agent's; whether the kernels of another one exist is not known."""
    (home / ".local/share/jupyter-gpu-kernel-code").mkdir(parents=True)
    (home / ".local/share/jupyter-gpu-kernel-code" / os.uname().nodename).mkdir(mode=0o755)
    (tmp_path / "other").mkdir(mode=0o700)
    others = Checkouts(RUNTIME, Root(tmp_path / "other"))
    other = others.make("o", str(repository.path), "HEAD")
    assert Path(other.tree).parents[1].stat().st_mode & 0o777 == 0o700
    pins: Dict[str, Pin] = {
        name: checkouts.make(name, str(repository.path), "HEAD") for name in ("a", "b", "c")
    }
    (Path(pins["b"].tree) / "result.csv").write_text("1")
    found = checkouts.leftovers(lambda kernel: kernel != "c")
    assert found == [{"kernel": name, "folder": pins[name].tree} for name in ("a", "b")]
    everything = [{"folder": pin.tree} for pin in pins.values()]
    assert checkouts.remove_leftovers(everything, lambda kernel: kernel != "c") == [
        {"kernel": "a", "folder": pins["a"].tree, "kept": ""},
        {"kernel": "b", "folder": pins["b"].tree, "kept": "1 changed or new file in it"},
    ]
    assert [path.name for path in pinned(home)] == ["b.1", "c.1", "o.1"]


def test_imports_are_redirected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a folder in the repository, also if it is installed with `pip install -e`; not of others, and not of those
    that are not in the commit, such as an environment."""
    for folder in ("project/src/pkg", "project/.venv", "tree/src/pkg", "other"):
        (tmp_path / folder).mkdir(parents=True)
    before = ["", f"{tmp_path}/project", f"{tmp_path}/project/.venv", f"{tmp_path}/other"]
    monkeypatch.setattr(sys, "path", list(before))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/project/src:{tmp_path}/other")
    finder: Any = type(sys)("__editable___pkg_finder")
    finder.MAPPING = {"pkg": f"{tmp_path}/project/src/pkg"}
    monkeypatch.setitem(sys.modules, finder.__name__, finder)
    assert redirect([f"{tmp_path}/project"], f"{tmp_path}/tree") == []
    assert sys.path == ["", f"{tmp_path}/tree/src", f"{tmp_path}/tree", *before[2:]]
    assert os.environ["PYTHONPATH"].split(":") == [
        f"{tmp_path}/tree", f"{tmp_path}/tree/src", f"{tmp_path}/other"
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------ kernels


def test_a_kernel_of_a_commit(repository: Repository, home: Path, place: Place) -> None:
    """Later edits do not reach it, not after a restart either; the story has commit and dirtiness; its first cell says
    what is not in it; it removes the checkout."""
    first = repository.git("rev-parse", "HEAD")
    repository.edit("dirty")
    hub = place.start("p1", code="HEAD", cwd=str(repository.path))
    repository.commit("two")
    (tree,) = trees(home)
    assert hub.run(IMPORT) == f"one {tree}\n"
    shown = [str(one.content().get("data")) for one in hub.got if one.content().get("data")]
    assert "It lacks 1 changed or new file of the repository" in shown[0]
    (entry,) = place.story("p1", "code")
    assert (entry["commit"], entry["changes"], entry["folder"]) == (first, 1, tree)
    hub.tell(keeper_message(do="restart"))
    eventually(lambda: len(place.story("p1", "start")) == 2, "a restart")
    assert hub.run(IMPORT) == f"one {tree}\n"
    code = "import gpu_kernel; s = gpu_kernel.status()['code']; print(s['commit'], s['changes'], s['folder'])"
    assert hub.run(code) == f"{first} 1 {tree}\n"
    stop(place, hub, "p1")
    assert pinned(home) == []
    with pytest.raises(Refused, match="p1 has ended: it was shut down"):
        place.handlers.open("p1", {})


def test_what_cannot_be_pinned_refuses_the_start(repository: Repository, home: Path, place: Place) -> None:
    with pytest.raises(Refused, match="there is no commit 'nope'") as refused:
        place.start("p2", code="nope", cwd=str(repository.path))
    assert refused.value.code == "code"
    assert not place.folder("p2").exists()
    with pytest.raises(Refused):
        place.start("p2", code="HEAD", cwd=str(repository.path), python="/no/python")
    assert pinned(home) == []


def test_gpu_code_in_the_first_cell(repository: Repository, home: Path, place: Place) -> None:
    """The commit is that of the moment when the cell was sent; what the cells write is kept."""
    repository.commit("two")
    hub = place.start("p3", cwd=str(repository.path))
    wrong, right = hub.ask("%gpu code nope\n1 + 1"), hub.ask("%gpu code HEAD~1")
    assert "there is no commit 'nope'" in hub.reply(wrong).content()["evalue"]
    assert hub.reply(right).content()["status"] == "ok", "it is the first cell now"
    printed = hub.run("%gpu code").replace("\n", " ")
    (tree,) = trees(home)
    assert (
        printed.startswith("This kernel runs commit ")
        and f"(value one) of {repository.path}, in {tree}." in printed
    )
    assert hub.run(IMPORT) == f"one {tree}\n"
    again = hub.reply(hub.ask("%gpu code HEAD")).content()
    assert (again["ename"], again["status"]) == ("CodeError", "error")
    assert "value one" in hub.run("%gpu")
    hub.run("open('result.csv', 'w').close()")
    stop(place, hub, "p3")
    kept = [entry for entry in place.story("p3", "code") if "kept" in entry["text"]]
    assert [entry["folder"] for entry in kept] == [tree]
    assert (Path(tree) / "result.csv").exists()


def test_cells_wait_until_the_code_is_pinned(
    repository: Repository, slow_git: SlowGit, place: Place, home: Path
) -> None:
    """In order. What is committed meanwhile does not count."""
    hub = place.start("p6", cwd=str(repository.path))
    hub.until(is_idle)
    cells = [hub.ask("%gpu code HEAD"), hub.ask("import lib; print(lib.VALUE)"), hub.ask("print('last')")]
    slow_git.until_it_waits()
    repository.commit("two")
    slow_git.go_on()
    assert [hub.reply(cell).content()["status"] for cell in cells] == ["ok", "ok", "ok"]
    printed = "".join(str(one.content().get("text", "")) for one in hub.got if one.channel is Channel.IOPUB)
    assert printed.endswith("\none\nlast\n")
    stop(place, hub, "p6")


def test_a_request_that_fails_meanwhile(
    repository: Repository, tmp_path: Path, place: Place, home: Path
) -> None:
    """The kernel aborts what is behind it, also the keeper's request to use the code, which is sent again. A cell with
    nothing else in it needs no GPU."""
    hub = place.start("p9", cwd=str(repository.path), gpus=1)
    hub.until(is_idle)
    go_on = tmp_path / "go_on"
    hub.ask(
        f"import os, time\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.01)\nraise SystemError",
        by_user=False,
    )
    cell = hub.ask("%gpu code HEAD")
    eventually(lambda: place.story("p9", "code"), "the code")
    go_on.touch()
    assert hub.reply(cell).content()["status"] == "ok"
    stop(place, hub, "p9")


def test_an_interrupt_while_the_code_is_pinned(
    repository: Repository, slow_git: SlowGit, place: Place, home: Path
) -> None:
    """The cell fails, git ends, and what it has made is removed; the next cell may ask again."""
    hub = place.start("p7", cwd=str(repository.path))
    hub.until(is_idle)
    cell = hub.ask("%gpu code HEAD")
    slow_git.until_it_waits()
    hub.tell(keeper_message(do="interrupt", cells=[], late=False))
    assert hub.reply(cell).content()["ename"] == "KeyboardInterrupt"
    eventually(lambda: place.story("p7", "code"), "an end of git")
    assert pinned(home) == []
    slow_git.go_on()
    assert "p7.1" in hub.run("%gpu code HEAD")
    stop(place, hub, "p7")
    assert pinned(home) == []


def test_a_stop_while_the_code_is_pinned(
    repository: Repository, slow_git: SlowGit, place: Place, home: Path
) -> None:
    """Neither git nor a checkout stays."""
    hub = place.start("p8", cwd=str(repository.path))
    hub.until(is_idle)
    hub.ask("%gpu code HEAD")
    slow_git.until_it_waits()
    stop(place, hub, "p8")
    assert pinned(home) == []


def test_a_killed_keepers_successor_removes_the_checkouts(
    repository: Repository, home: Path, place: Place
) -> None:
    """That which the kernel uses, and one that the killed keeper has made, and not used yet."""
    hub = place.start("p4", code="HEAD", cwd=str(repository.path))
    Checkouts(RUNTIME, Root(place.path)).make("p4", str(repository.path), "HEAD")
    hub.run("import os; os.chdir('sub')")
    keeper = hub.keeper
    os.kill(keeper, signal.SIGKILL)
    hub.sock.close()
    eventually(lambda: place.story("p4", "succession"), "a successor")
    hub = Hub(place.handlers.open("p4", {})[1])
    assert hub.reply(hub.ask("%gpu code HEAD")).content()["ename"] == "CodeError", "it is not the first cell"
    assert hub.run("print(os.path.basename(os.getcwd()))") == "sub\n"
    stop(place, hub, "p4")
    assert pinned(home) == []


def test_what_a_crash_left_is_removed(repository: Repository, home: Path, place: Place) -> None:
    hub = place.start("p5", code="HEAD", cwd=str(repository.path))
    kernel, keeper = int(hub.run("import os; print(os.getpid())")), hub.keeper
    assert place.handlers.handle({"do": "leftovers"})["code"] == []
    for pid, number in ((kernel, signal.SIGSTOP), (keeper, signal.SIGKILL), (kernel, signal.SIGKILL)):
        os.kill(pid, number)
    hub.sock.close()
    (tree,) = trees(home)
    eventually(lambda: not place.handlers.handle({"do": "list"})["kernels"], "an end of its folder")
    found = place.handlers.handle({"do": "leftovers"})["code"]
    request = {"do": "end_leftovers", "leftovers": [], "code": found}
    assert place.handlers.handle(request)["code"] == [{"kernel": "p5", "folder": tree, "kept": ""}]
    assert pinned(home) == []
