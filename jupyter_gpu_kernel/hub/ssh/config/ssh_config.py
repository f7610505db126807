"""Looks up one host in the user's ssh configuration, with `ssh -G`.

The values are plain text under the present names of the directives, in lower case. This module knows no hops and no
connections.
"""

from __future__ import annotations

import functools
import getpass
import glob
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ....errors import RouteError
from ...transport.process import run_quietly
from .destination import Destination
from .directives import EARLIER_NAMES, Values, first

_TIMEOUT = 20.0  # seconds; `Match exec` in the user's own file may run programs
_DEFAULT_KEYS = ("id_rsa", "id_ecdsa", "id_ed25519")
_SYSTEM = (
    Path(os.environ.get("PROGRAMDATA", "") if sys.platform == "win32" else "/etc") / "ssh" / "ssh_config"
)
_INSTALL = "Install OpenSSH's client; on Windows: Settings, Optional features, OpenSSH Client."


def lookup(destination: Destination) -> Values:
    """Return all values for this machine, several for keywords that repeat. Raises RouteError if the configuration
    cannot be used."""
    program = shutil.which("ssh")
    return _as_typed(destination) if program is None else _ask_ssh(program, destination)


def defaults() -> Values:
    """Return the values for a host without any configuration; empty where there is no ssh program."""
    program = shutil.which("ssh")
    return {} if program is None else _defaults_of(program)


@functools.cache
def _defaults_of(program: str) -> Values:
    return _ask_ssh(program, Destination("host", "host", config="none"))


def _ask_ssh(program: str, destination: Destination) -> Values:
    command = [program, "-G", *destination.options, "--", destination.host]
    try:
        done = run_quietly(command, _TIMEOUT)
    except OSError as error:
        raise _unusable(destination, f"{program} -G failed ({error})") from error
    if done.returncode != 0:
        complaint = done.stderr.decode("utf-8", "replace").strip().splitlines()
        ended = f"ssh -G ended with exit status {done.returncode}"
        raise _unusable(destination, "; ".join(complaint[-2:]) or ended)
    return _collect(line.split(" ", 1) for line in done.stdout.decode("utf-8", "replace").splitlines())


def _collect(pairs: Iterator[list[str]]) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for pair in pairs:
        if len(pair) == 2:
            key = pair[0].lower()
            values.setdefault(EARLIER_NAMES.get(key, key), []).append(pair[1].strip())
    return values


def _unusable(destination: Destination, cause: str) -> RouteError:
    remedy = f"Correct {destination.config or '~/.ssh/config'}."
    return RouteError(f"the ssh configuration cannot be used: {cause}", hop=destination.host, remedy=remedy)


def files(values: Values, key: str) -> tuple[Path, ...]:
    """Return the files that a directive names, one in each of its values."""
    return _absolute(values.get(key, ()))


def known_hosts(values: Values) -> tuple[Path, ...]:
    """Return the known_hosts files: the user's, then the system's."""
    lines = first(values, "userknownhostsfile"), first(values, "globalknownhostsfile")
    return _absolute(name for line in lines for name in _split_names(line))


def _absolute(names: Iterable[str]) -> tuple[Path, ...]:
    return tuple(Path(os.path.expanduser(name)).absolute() for name in names if name not in ("", "none"))


def _split_names(line: str) -> list[str]:
    """Split the file names of one line. `ssh -G` prints them without quotes, so the longest name that exists wins."""
    words, found = line.split(" "), []
    while words:
        for count in range(len(words), 0, -1):
            name = " ".join(words[:count])
            if count == 1 or os.path.exists(os.path.expanduser(name)):
                found.append(name)
                del words[:count]
                break
    return found


# --- without an ssh program


def _as_typed(destination: Destination) -> Values:
    """Return what the user wrote, and ssh's usual files. Raises RouteError if there is a configuration: only ssh itself
    knows what it permits."""
    home = Path.home() / ".ssh"
    for file in [Path(destination.config)] if destination.config else [home / "config", _SYSTEM]:
        if next(parsed_lines(file), None) is not None:
            cause = f"{file} can only be read by the ssh program, which is not installed"
            raise RouteError(cause, hop=destination.host, remedy=_INSTALL)
    return {
        "user": [destination.user or getpass.getuser()],
        "port": [str(destination.port or 22)],
        "identityfile": list(destination.identity) or [str(home / name) for name in _DEFAULT_KEYS],
        "userknownhostsfile": [str(home / "known_hosts")],
        "globalknownhostsfile": [str(_SYSTEM.with_name("ssh_known_hosts"))],
    }


# --- the words of a file, to offer the hosts that it names


def parsed_lines(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the lower-case keyword and the words of each line; nothing if there is no such file. Raises RouteError if
    the file cannot be read."""
    try:
        lines = file.read_text("utf-8", "replace").splitlines() if file.is_file() else []
    except OSError as error:
        cause = f"the ssh configuration {file} cannot be read: {error.strerror}"
        raise RouteError(cause, remedy="Check its path, and its permissions.") from error
    for text in lines:
        found = re.match(r"\s*([A-Za-z]\w*)\s*[\s=]\s*(.*)", text)
        if found and (words := re.findall(r'"[^"]*"|[^\s"]+', found[2].partition("#")[0])):
            yield found[1].lower(), [word.strip('"') for word in words]


def included_files(words: Sequence[str], file: Path) -> Iterator[Path]:
    """Yield the files that the words of an Include line in `file` name."""
    base = _SYSTEM.parent if file.is_relative_to(_SYSTEM.parent) else Path.home() / ".ssh"
    for word in words:
        yield from (Path(name) for name in sorted(glob.glob(str(base / os.path.expanduser(word)))))
