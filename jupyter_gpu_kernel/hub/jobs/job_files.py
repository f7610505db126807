"""The files about kernels in jobs on this computer: which job has which notebook's kernel, and what happened.

A node may be out of reach when its job is over; then `logs` shows what these files contain.
"""

from __future__ import annotations

import contextlib
import json
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ...wire.files import replace_file
from .. import sanitize
from ..background import DiskThread

MAX_FILES = 200
_MAX_EVENTS = 200
_MAX_SIZE = 256 * 1024


class JobFile(NamedTuple):
    """The content of one kernel's file. `over`: whether the kernel's job is known to have ended."""

    kernel: str
    job: str = ""
    name: str = ""
    notebook: str = ""
    login: str = ""
    """The name of the login node in messages."""
    over: bool = False
    events: tuple[dict[str, Any], ...] = ()

    @property
    def changed(self) -> float:
        """When the last event was recorded; 0 if there is none."""
        return float(self.events[-1]["time"]) if self.events else 0.0

    def with_event(self, now: float, event: str, text: str, **more: Any) -> JobFile:
        """Return the content with one more event."""
        entry = {"time": now, "event": event, "text": sanitize.one_line(text), **more}
        return self._replace(events=(*self.events, entry)[-_MAX_EVENTS:])


class JobFiles:
    """One file for each kernel, in a folder. Above MAX_FILES the oldest files are removed.

    The contents are also kept in memory, as the folder may be on a slow file system: a thread reads the files once, and
    writes what is saved. Nothing may be saved before the files are `loaded`.
    """

    def __init__(self, folder: Path, disk: DiskThread) -> None:
        self._folder = folder
        self._disk = disk
        self._known: dict[str, JobFile] = {}  # by kernel, the oldest first
        self._is_loaded = False
        disk.call(self._load)

    async def loaded(self, within: float | None = None) -> None:
        """Return when the files have been read, or after `within` seconds. Before that, no kernel is known."""
        if not self._is_loaded:
            await self._disk.done(within)

    def newest_first(self) -> list[JobFile]:
        """Return the files of all kernels."""
        return list(reversed(self._known.values()))

    def get(self, kernel_id: str) -> JobFile:
        """Return the content of the kernel's file; an empty one if there is no file."""
        return self._known.get(kernel_id) or JobFile(kernel_id)

    def find(self, name: str, notebook: str) -> JobFile | None:
        """Return the newest file of the notebook's kernels of this kernelspec whose job may still exist."""
        wanted = (one for one in self.newest_first() if (one.name, one.notebook) == (name, notebook))
        return next((one for one in wanted if not one.over), None) if notebook else None

    def of_job(self, job_id: str, login: str) -> list[JobFile]:
        """Return the files of the kernels of this job."""
        return [one for one in self.newest_first() if (one.job, one.login) == (job_id, login)]

    def save(self, file: JobFile) -> None:
        """Keep the content of a kernel's file in memory, and write the file soon."""
        known = self._known
        known.pop(file.kernel, None)
        known[file.kernel] = file
        removed = [known.pop(one).kernel for one in list(known)[:-MAX_FILES]]
        self._disk.call(partial(self._write, file, removed))

    # -------------------------------------------------------------------------- in the thread

    def _load(self) -> None:
        times = []
        with contextlib.suppress(OSError):
            for path in self._folder.glob("*.json"):
                with contextlib.suppress(OSError):
                    times.append((path.stat().st_mtime, path))
        read = (_read(path) for _, path in sorted(times))
        self._known = {file.kernel: file for file in read if file is not None}
        self._is_loaded = True

    def _write(self, file: JobFile, removed: list[str]) -> None:
        with contextlib.suppress(OSError):  # a full disk: then a killed hub's successor asks Slurm only
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._folder / f"{file.kernel}.json", json.dumps(file._asdict()).encode())
            for kernel_id in removed:
                (self._folder / f"{kernel_id}.json").unlink(missing_ok=True)


def _read(path: Path) -> JobFile | None:
    try:
        if path.stat().st_size > _MAX_SIZE:
            return None
        known = json.loads(path.read_text())
        known = {key: known[key] for key in JobFile._fields}
        file = JobFile(**{**known, "events": tuple(known["events"])})
        return file if f"{file.kernel}.json" == path.name else None
    except (OSError, ValueError, TypeError, KeyError):
        return None
