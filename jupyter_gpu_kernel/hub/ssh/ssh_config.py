"""What the user's ssh config says about one host: asked of `ssh -G`, or read here where there is no ssh.

Gives plain values, as text, under ssh's own lower-case keywords. Knows nothing of hops or connections.
"""

from __future__ import annotations

import functools
import getpass
import glob
import os
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from ...errors import RouteError

Values = Mapping[str, Sequence[str]]
_TIMEOUT = 20.0  # seconds; `Match exec` of the user's own file may run programs
_DEFAULT_KEYS = ("id_rsa", "id_ecdsa", "id_ed25519")


def lookup(
    host: str,
    *,
    user: str | None = None,
    port: int | None = None,
    identity: Sequence[str] = (),
    config: str | None = None,
) -> Values:
    """Every value of `host`, several for keywords that repeat. RouteError if the config cannot be used."""
    program = shutil.which("ssh")
    if program is None:
        return _read_ourselves(host, user, port, identity, config)
    command = [*(["-F", config] if config else [])]
    command += [word for key in identity for word in ("-i", key)]
    command += [*(["-l", user] if user else []), *(["-p", str(port)] if port else [])]
    return _ask_ssh(program, command, host, config)


def defaults() -> Values:
    """What ssh does for a host without any config; empty where there is no ssh."""
    program = shutil.which("ssh")
    return {} if program is None else _defaults_of(program)


@functools.cache
def _defaults_of(program: str) -> Values:
    return _ask_ssh(program, ["-F", "none"], "host", None)


def _ask_ssh(program: str, options: Sequence[str], host: str, config: str | None) -> Values:
    command = [program, "-G", *options, "--", host]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unusable(host, config, f"{program} -G did not answer ({error})") from error
    if done.returncode != 0:
        complaint = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise _unusable(host, config, "; ".join(complaint[-2:]) or f"ssh -G ended with {done.returncode}")
    return _collect(line.split(" ", 1) for line in done.stdout.decode("utf-8", "replace").splitlines())


def _collect(pairs: Iterator[list[str]]) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for pair in pairs:
        if len(pair) == 2:
            values.setdefault(pair[0].lower(), []).append(pair[1].strip())
    return values


def _unusable(host: str, config: str | None, cause: str) -> RouteError:
    where = config or "~/.ssh/config"
    return RouteError(
        f"the ssh config says something that cannot be used: {cause}", hop=host, remedy=f"Correct {where}."
    )


def expand(text: str, host: str, values: Values, original: str) -> Path:
    """A path of the config with `~`, `${NAME}` and ssh's % tokens replaced."""
    tokens = {
        "%": "%",
        "d": str(Path.home()),
        "h": host,
        "i": str(os.getuid()) if hasattr(os, "getuid") else "",
        "k": (values.get("hostkeyalias") or [host])[0],
        "l": socket.gethostname(),
        "n": original,
        "p": (values.get("port") or ["22"])[0],
        "r": (values.get("user") or [""])[0],
        "u": getpass.getuser(),
    }
    text = re.sub(r"\$\{(\w+)\}", lambda found: os.environ.get(found[1], ""), text)
    text = re.sub(r"%(.)", lambda found: tokens.get(found[1], found[0]), text)
    return Path(os.path.expanduser(text)).absolute()


def paths(value: str) -> list[str]:
    """The files of one line; `ssh -G` prints them without quotes, so the longest name that exists wins."""
    words, found = value.split(" "), []
    while words:
        for count in range(len(words), 0, -1):
            name = " ".join(words[:count])
            if count == 1 or os.path.exists(os.path.expanduser(name)):
                found.append(name)
                del words[:count]
                break
    return [name for name in found if name and name != "none"]


# --- without an ssh program


def _read_ourselves(
    host: str, user: str | None, port: int | None, identity: Sequence[str], config: str | None
) -> Values:
    """Host, Include and plain keywords. Match needs ssh itself and is refused rather than guessed."""
    home = Path.home() / ".ssh"
    values: dict[str, list[str]] = {"identityfile": list(identity)} if identity else {}
    if user:
        values["user"] = [user]
    if port:
        values["port"] = [str(port)]
    if config and not Path(config).is_file():
        raise _unusable(host, config, "there is no such file")
    for file in [Path(config)] if config else [home / "config", Path("/etc/ssh/ssh_config")]:
        _read_file(file, host, values, True, 0)
    values["hostname"] = [values.get("hostname", [host])[0].replace("%h", host)]
    values.setdefault("user", [getpass.getuser()])
    values.setdefault("port", ["22"])
    values.setdefault("identityfile", [str(home / name) for name in _DEFAULT_KEYS])
    values.setdefault("userknownhostsfile", [str(home / "known_hosts")])
    values.setdefault("globalknownhostsfile", ["/etc/ssh/ssh_known_hosts"])
    return values


def _read_file(file: Path, host: str, values: dict[str, list[str]], active: bool, depth: int) -> None:
    if depth > 8:
        raise _unusable(host, str(file), "Include goes round in circles")
    if not file.is_file():
        return
    for key, words in _lines(file):
        if key == "host":
            active = _host_matches(words, host)
        elif key == "match":
            if words != ["all"]:
                raise _unusable(
                    host, str(file), "Match can be followed only where the ssh program is installed"
                )
            active = True
        elif key == "include":
            for name in _included(words, file):
                _read_file(name, host, values, active, depth + 1)
        elif active and (key == "identityfile" or key not in values):
            values.setdefault(key, []).append(" ".join(words))


def _lines(file: Path) -> Iterator[tuple[str, list[str]]]:
    for text in file.read_text("utf-8", "replace").splitlines():
        found = re.match(r"\s*([A-Za-z]\w*)\s*[\s=]\s*(.*)", text)
        if found:
            try:
                yield found[1].lower(), shlex.split(found[2], comments=True)
            except ValueError:
                yield found[1].lower(), found[2].split()


def _host_matches(patterns: Sequence[str], host: str) -> bool:
    if any(p.startswith("!") and fnmatchcase(host, p[1:]) for p in patterns):
        return False
    return any(fnmatchcase(host, p) for p in patterns if not p.startswith("!"))


def _included(words: Sequence[str], file: Path) -> Iterator[Path]:
    base = Path("/etc/ssh") if str(file).startswith("/etc/ssh") else Path.home() / ".ssh"
    for word in words:
        yield from (Path(name) for name in sorted(glob.glob(str(base / os.path.expanduser(word)))))
