"""Makes the checkout of a kernel's pinned code, and removes it when nothing in it was changed.

    <home>/.local/share/jupyter-gpu-kernel-code/<node>/<kernel>.<n>/pin.json     what is pinned
    <home>/.local/share/jupyter-gpu-kernel-code/<node>/<kernel>.<n>/<name>/      the checkout

The checkout is in the home folder, as results that cells write into it must outlive a reboot; in the agent's own folder
where the home cannot be written. It is a repository of its own, which shares the objects and the settings of the user's
repository, and writes nothing into that: so it serves any version of git, and repositories that only others can write.
All calls block.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ...wire import revisions
from ...wire.texts import one_line
from ..paths import FolderError, Root, check_private, lock_now
from ..system.agent_runtime import AgentRuntime
from .git import MAX_OUTPUT, Git, PinError

_MOST_TAGS = 5000
LIMIT = 80.0
"""Seconds to make, or to examine, a checkout: a front end waits at most 120 s for a kernel."""
_COPIED = ("shallow", "info/attributes", "info/exclude")
"""The files of the user's `.git` folder that the checkout's own one has, too."""
_RECORD = "pin.json"
_CACHE = re.compile(r'__pycache__/|\.pyc"?$')
"""Python's own files, in a line of `git status`: they are no changes."""


class Pin(NamedTuple):
    """The code of one kernel."""

    revision: str  # as the user gave it
    commit: str
    subject: str  # of the commit
    repository: str  # the folder of the user's own working tree
    tree: str  # the checkout
    cwd: str  # the folder in the checkout that corresponds to the one that was pinned
    changes: Optional[int]  # changed and new files in the repository that were not committed; None: unknown
    submodules: bool  # whether the commit has submodules, which are not in the checkout

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Pin:
        """Read a record. Raises KeyError if it lacks something."""
        return cls(*(data[name] for name in cls._fields))

    def is_same(self, other: Pin) -> bool:
        """Whether this pin's folder still exists, and both are of the same commit of the same folder."""
        names = [os.path.relpath(pin.cwd, pin.tree) for pin in (self, other)]
        same = (self.commit, self.repository, names[0]) == (other.commit, other.repository, names[1])
        return same and os.path.isdir(self.cwd)

    @property
    def text(self) -> str:
        """The commit and where it is, for users."""
        name = f"{self.commit[:12]} ({one_line(self.subject, 80)})"
        return f"commit {name} of {one_line(self.repository, 500)}, in {one_line(self.tree, 500)}"

    @property
    def warnings(self) -> List[str]:
        """What the user may miss in the checkout, one sentence each."""
        found = []
        if self.changes is None:
            found.append("It lacks what is not committed; how many files that are is not known.")
        elif self.changes:
            are = "is" if self.changes == 1 else "are"
            found.append(f"It lacks {_files(self.changes)} of the repository, which {are} not committed.")
        if self.submodules:
            found.append("It lacks the commit's submodules, which are not checked out.")
        return found


class Checkouts:
    """The checkouts of this user's kernels on this node."""

    def __init__(self, runtime: AgentRuntime, root: Root) -> None:
        self._runtime = runtime
        home = Path(os.path.expanduser("~")) / ".local" / "share" / "jupyter-gpu-kernel-code"
        self._root = str(root.path)
        self._folders = [home / os.uname().nodename, root.path / "code"]

    # -------------------------------------------------------------------------------------- make

    def make(
        self, kernel_id: str, folder: str, revision: str, cancelled: Callable[[], bool] = lambda: False
    ) -> Pin:
        """Check out `revision` of the repository that `folder` belongs to. Raises PinError; soon, if `cancelled()`."""
        git, top, commit = self.find(folder, revision, cancelled)
        store, prefix = _store(git, folder), git.line("rev-parse", "--show-prefix")
        subject = git.line("log", "-1", "--format=%s", commit)
        changes, submodules = _count_changes(git, top), _exists(git, f"{commit}:.gitmodules")
        holder = self._reserve(kernel_id)  # only now: the calls of git before may fail, or be cancelled
        tree = str(holder / (os.path.basename(top) or "code"))
        cwd = os.path.join(tree, prefix).rstrip("/")
        pin = Pin(revision, commit, subject, top, tree, cwd, changes, submodules)
        try:
            (holder / _RECORD).write_text(json.dumps(dict(pin._asdict(), root=self._root)))
            _check_out(git, pin, store)
            if not os.path.isdir(pin.cwd):
                raise PinError(f"there is no folder {one_line(prefix)} in commit {commit[:12]} of {top}")
        except (OSError, PinError) as error:
            _discard(pin)
            raise PinError(str(error)) from None
        return pin

    def find(
        self, folder: str, revision: str, cancelled: Callable[[], bool] = lambda: False
    ) -> Tuple[Git, str, str]:
        """Return git in the folder, the top folder of its repository, and the commit. Raises PinError."""
        problem = revisions.fault(revision)
        if problem:
            raise PinError(f"{one_line(revision)!r} is not a revision: {problem}")
        git = Git(self._runtime, folder, LIMIT, cancelled)
        nowhere = f"git finds no repository with files at {one_line(folder)}"
        top = git.line("rev-parse", "--show-toplevel", problem=nowhere)
        missing = f"there is no commit {one_line(revision)!r} in {one_line(top)}"
        return git, top, git.line("rev-parse", "--verify", revision + "^{commit}", problem=missing)

    def _reserve(self, kernel_id: str) -> Path:
        """Make the folder of one more checkout of this kernel, which only the user can read."""
        problems = []
        for folder in self._folders:
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                check_private(folder)
                return _next_folder(folder, kernel_id)
            except (OSError, FolderError) as error:
                problems.append(str(error))
        raise PinError(f"no folder for the code can be made: {'; '.join(problems)}")

    # -------------------------------------------------------------------------------------- remove

    def remove(self, pin: Pin) -> str:
        """Remove the checkout if nothing in it was changed. Return why it was kept; "" if it is gone."""
        record = Path(pin.tree).parent / _RECORD
        try:
            file = record.open("r+")
        except FileNotFoundError:
            return "its folder has no record of it" if os.path.lexists(pin.tree) else ""
        except OSError as error:
            return f"its record cannot be opened: {error.strerror}"
        with file:  # two `attach` remove it at the same time where the node is reached by two routes
            if not self._runtime.wait_until(lambda: lock_now(file.fileno()), LIMIT):
                return "another process is examining it"
            return self._remove(pin) if record.is_file() else ""

    def _remove(self, pin: Pin) -> str:
        try:
            kept = _why_kept(Git(self._runtime, pin.tree, LIMIT), pin) if os.path.isdir(pin.tree) else ""
        except PinError as error:
            kept = f"whether it was changed is not known: {error}"
        return kept or _discard(pin)

    def of_kernel(self, kernel_id: str) -> List[Pin]:
        """Return all pins that were made for this kernel, also those that it does not use."""
        return [pin for kernel, pin in self._pins() if kernel == kernel_id]

    def leftovers(self, is_gone: Callable[[str], bool]) -> List[Dict[str, str]]:
        """Return what kernels left that no longer exist: `is_gone(id)`. As [{kernel, folder}].

        Only of this agent's folder: of kernels of others we do not know whether they exist.
        """
        return [{"kernel": kernel, "folder": pin.tree} for kernel, pin in self._pins() if is_gone(kernel)]

    def remove_leftovers(
        self, rows: List[Dict[str, Any]], is_gone: Callable[[str], bool]
    ) -> List[Dict[str, str]]:
        """Remove those of these leftovers in which nothing was changed. Return them as [{kernel, folder, kept}]: `kept`
        says why one was kept."""
        folders = [row.get("folder") for row in rows]
        return [
            {"kernel": kernel, "folder": pin.tree, "kept": self.remove(pin)}
            for kernel, pin in self._pins()
            if pin.tree in folders and is_gone(kernel)
        ]

    def _pins(self) -> List[Tuple[str, Pin]]:
        """The id of each kernel, and its pin."""
        found = []
        for folder in self._folders:
            for record in sorted(folder.glob("*/" + _RECORD)):
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    data = json.loads(record.read_text())
                    pin = Pin.from_json(data)
                    if data["root"] == self._root and Path(pin.tree).parent == record.parent:
                        found.append((record.parent.name.rpartition(".")[0], pin))
        return found


def _store(git: Git, folder: str) -> str:
    """The `.git` folder that has the repository's objects, also if `folder` is in a worktree of git's."""
    option = "--git-common-dir"
    found = git.line("rev-parse", option)
    if found == option:  # git before 2.5 does not know it, and has no worktrees
        found = git.line("rev-parse", "--git-dir")
    return os.path.abspath(os.path.join(folder, found))


def _exists(git: Git, name: str) -> bool:
    try:
        git.run("cat-file", "-e", name)
    except PinError:
        return False
    return True


def _why_kept(git: Git, pin: Pin) -> str:
    changes = _changes(git, "--ignored", "--untracked-files=all")
    if changes:
        return f"{_files(len(changes))} in it"
    return "" if git.line("rev-parse", "HEAD") == pin.commit else "another commit is checked out in it"


def _files(count: int) -> str:
    return "1 changed or new file" if count == 1 else f"{count} changed or new files"


def _changes(git: Git, *options: str, folder: str = "") -> List[str]:
    """The changed, new and ignored files, as far as git prints them with these options."""
    lines = git.run("status", "--porcelain", *options, folder=folder)
    changes = [line for line in lines.splitlines() if not _CACHE.search(line)]
    return [*changes, "…"] if len(lines) >= MAX_OUTPUT else changes


def _count_changes(git: Git, top: str) -> Optional[int]:
    try:
        return len(_changes(git, "--untracked-files=normal", folder=top))
    except PinError:
        return None


def _next_folder(folder: Path, kernel_id: str) -> Path:
    for number in itertools.count(1):
        with contextlib.suppress(FileExistsError):
            holder = folder / f"{kernel_id}.{number}"
            holder.mkdir(mode=0o700)
            return holder
    raise AssertionError


def _check_out(git: Git, pin: Pin, store: str) -> None:
    """Make the checkout. Its settings come after those of the user's repository, such as filters and remotes."""
    object_format = ["--object-format=sha256"] if len(pin.commit) == 64 else []
    git.run("init", "--quiet", "--template=", *object_format, pin.tree)
    own = Path(pin.tree) / ".git"
    config, settings = own / "config", (own / "config").read_text()
    config.write_text("")
    git.run("config", "--file", str(config), "include.path", os.path.join(store, "config"))
    config.write_text(config.read_text() + settings)
    git.run("config", "--file", str(config), "core.worktree", "..")
    (own / "info").mkdir(exist_ok=True)
    (own / "objects" / "info" / "alternates").write_text(os.path.join(store, "objects") + "\n")
    for name in _COPIED:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy(os.path.join(store, name), str(own / name))
    tags = git.run("for-each-ref", "--format=%(objectname) %(refname)", "refs/tags")
    (own / "packed-refs").write_text("".join(tags.splitlines(keepends=True)[:_MOST_TAGS]))
    git.run("checkout", "--quiet", "--detach", pin.commit, folder=pin.tree)


def _discard(pin: Pin) -> str:
    """Remove the checkout, whatever is in it. Return why that is not possible; "" if it is gone."""
    shutil.rmtree(str(Path(pin.tree).parent), ignore_errors=True)
    return "it cannot be removed" if os.path.lexists(pin.tree) else ""
