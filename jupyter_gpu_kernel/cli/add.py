"""The verb `add`: from ssh's own words to a kernelspec, with a look at the way, the Pythons and the GPUs."""

from __future__ import annotations

import argparse
import os
import re
from typing import Any

from .. import kernelspecs
from ..errors import AuthError, HostKeyError, RouteError, SettingsError
from ..settings import Settings, read_env_file
from . import show
from .verb import Verb, print_json, with_json


class Add(Verb):
    verb = "add"
    summary = "Find the way, a Python and the GPUs of a machine, and make it a kernel for every front end."

    def declare(self, parser: argparse.ArgumentParser) -> None:
        self._declare_way(parser)
        self._declare_kernel(parser)
        self._declare_surroundings(parser)
        add = parser.add_argument
        add("--no-probe", action="store_true", help="write the kernelspec only; connect to nothing")
        add("--replace", action="store_true", help="write anew what has the same name")
        add(
            "--prefix",
            metavar="DIR",
            help="write one kernelspec under DIR/share/jupyter, and leave others as they are",
        )
        with_json(parser)

    def _declare_way(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "destination",
            metavar="DESTINATION",
            help="user@host[:port], an alias of your ssh config, or a pasted “ssh …”",
        )
        add(
            "-J",
            dest="jumps",
            metavar="HOP[,HOP…]",
            action="append",
            default=[],
            help="through these hops, as with ssh",
        )
        add(
            "-i",
            dest="identity",
            metavar="KEY",
            action="append",
            default=[],
            help="a private key; may be repeated",
        )
        add("-F", dest="config", metavar="SSH_CONFIG", help="in place of ~/.ssh/config")
        add("-p", dest="port", metavar="PORT", type=int, help="the destination's SSH port")

    def _declare_kernel(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--name", metavar="NAME", help="the kernelspec's name (default: the host)")
        add(
            "--python",
            metavar="PATH",
            default="",
            help="the kernel's Python there (default: the best that is found)",
        )
        add(
            "--gpus",
            metavar="N",
            type=int,
            default=1,
            help="how many GPUs a kernel takes (default: 1; 0: none)",
        )
        add(
            "--sigterm",
            choices=["survive", "default"],
            default="survive",
            help="while in use (default: survive)",
        )
        add(
            "--idle-timeout",
            metavar="SECONDS",
            type=float,
            help="end an idle kernel that nobody is attached to after this time (default: 7200; 0: never)",
        )

    def _declare_surroundings(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "--env",
            metavar="NAME=VALUE",
            type=_assignment,
            action="append",
            default=[],
            help="may be repeated",
        )
        add(
            "--env-file",
            metavar="FILE",
            default="",
            help="NAME=VALUE lines, only readable by you: the place for secrets",
        )
        add("--cwd", metavar="DIR", default="", help="where the kernel works (default: the home)")
        add(
            "--setup",
            metavar="LINE",
            action="append",
            default=[],
            help="shell line before the kernel; may be repeated",
        )

    def run(self) -> int:
        words = self.words
        settings = self._settings()
        name = words.name if words.name is not None else _default_name(settings["route"][-1])
        kernelspecs.check_name(name, prefix=words.prefix, replace=words.replace)
        probe = None
        if words.no_probe and words.python[:1] not in ("", "/"):
            raise SettingsError(
                f"{words.python} is not an absolute path",
                remedy="Write the whole path, or leave --no-probe out, so that it can be looked for.",
            )
        if not words.no_probe:
            probe = self._probe(settings)
            settings["route"] = probe["route"]
            settings["python"] = probe["python"]["path"]
        spec = kernelspecs.write(name, settings, prefix=words.prefix, replace=words.replace)
        shown = {
            "name": spec.name,
            "display_name": spec.display_name,
            "path": str(spec.path),
            "settings": spec.settings,
        }
        if words.json:
            print_json({**shown, "probe": probe})
        else:
            print("\n".join([*(_what_was_found(probe, settings) if probe else []), *_what_is_next(spec)]))
        return 0

    def _probe(self, settings: dict[str, Any]) -> Any:
        try:
            return self.ask_hub("probe", lines=not self.words.json, settings=settings)
        except (AuthError, HostKeyError) as error:  # there is no kernelspec yet to sign in with
            error.remedy = error.remedy.replace(
                "jupyter gpu-kernel login NAME", "run this command in a terminal"
            )
            raise

    def _settings(self) -> dict[str, Any]:
        """The words as settings, checked, before anything connects."""
        from ..hub.ssh.route import parse_route

        words = self.words
        config, identity = _file(words.config), [_file(key) for key in words.identity]
        if config and not os.path.isfile(config):
            raise RouteError(f"there is no file {config}", remedy="Check the path given with -F.")
        hops = parse_route(
            words.destination, words.jumps, identity=identity, config=config or None, port=words.port
        )
        if words.env_file:
            read_env_file(_file(words.env_file))
        return Settings(
            route=tuple(hop.destination for hop in hops),
            identity=tuple(identity),
            config=config,
            python=words.python,
            gpus=words.gpus,
            env=dict(words.env),
            env_file=_file(words.env_file),
            cwd=words.cwd,
            setup=tuple(words.setup),
            sigterm=words.sigterm,
            idle_timeout=words.idle_timeout,
        ).to_json()


def _file(path: str | None) -> str:
    return os.path.abspath(os.path.expanduser(path)) if path else ""


def _assignment(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _default_name(word: str) -> str:
    """The host of a route's last word, in the letters that names may have."""
    host = word.split()[-1].rpartition("@")[2]
    host = re.sub(r":\d+$", "", host) if host.count(":") == 1 or "]" in host else host
    return re.sub(r"[^a-z0-9._-]+", "-", host.lower()).strip("-.") or "gpu"


def _what_was_found(probe: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    lines = [f"  {hop['hop']}: {hop['step']} {hop['seconds']:.2f} s" for hop in probe["hops"]]
    python, node = probe["python"], probe["node"]
    lines.append(f"Python: {python['path']} ({python['version']}, ipykernel {python['ipykernel']})")
    lines += [f"  not taken: {other['path']} {other['why_not']}" for other in probe["others"]]
    lines += [f"  not looked at: {place}" for place in probe.get("unseen", [])]
    if node.get("home_problem"):
        lines.append(f"Note: nothing can be written into {node.get('home')} there: {node['home_problem']}")
    if probe["gpus"]:
        lines.append(show.gpus(probe["gpus"]))
    elif probe.get("gpus_error"):
        lines.append(f"Note: the GPUs cannot be read: {probe['gpus_error']}")
    elif settings["gpus"]:
        lines.append("Note: this machine has no GPU. With --gpus 0 the kernel does not wait for one.")
    return [show.plain(line) for line in lines]


def _what_is_next(spec: kernelspecs.Spec) -> list[str]:
    other = kernelspecs.shadowed_by(spec)
    note = (
        [f"Note: front ends of this environment find another kernelspec of this name: {other}"]
        if other
        else []
    )
    return [
        f"Written: {spec.path}",
        *note,
        f"Pick “{spec.display_name}” in JupyterLab, or in VS Code: Select Kernel → Jupyter Kernel…",
    ]
