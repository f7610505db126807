"""The options of `add`: one for each setting, and those that say how the kernelspec comes about."""

from __future__ import annotations

import argparse
from typing import Any

from ...adding import option_of
from ...wire import durations
from ...wire.kernel_settings import CONNECTION, ENVIRONMENT, GROUPS, KERNEL, RARE, USER_SETTINGS, default_of
from ..arguments import span
from . import create_env


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare all arguments of `add`."""
    groups = {title: parser.add_argument_group(title, about) for title, about in GROUPS.items()}
    _add_route(groups[CONNECTION])
    kernel, rare = groups[KERNEL].add_argument, groups[RARE].add_argument
    kernel("--name", metavar="NAME", help="the kernelspec's name (default: the host)")
    kernel("--replace", action="store_true", help="overwrite a kernelspec of the same name")
    for key, info in USER_SETTINGS.items():
        if info.group:
            groups[info.group].add_argument(option_of(key), dest=key, help=info.help, **_form(key))
    create_env.add_arguments(groups[ENVIRONMENT])
    rare("--no-probe", action="store_true", help="write the kernelspec without connecting")
    rare("--prefix", metavar="DIR", help="write one kernelspec under DIR/share/jupyter, and change no other")


def _add_route(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "destination",
        metavar="DESTINATION",
        nargs="?",
        help="user@host[:port], a Host of your ssh configuration, a pasted “ssh …” command, or localhost",
    )
    jumps = "jump hosts, as for ssh"
    group.add_argument("-J", dest="jumps", metavar="HOP[,HOP…]", action="append", help=jumps)
    group.add_argument("-p", dest="port", metavar="PORT", type=int, help="the destination's SSH port")


def given_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings among the arguments; None: the option was not given."""
    given = {key: value for key, value in vars(args).items() if key in USER_SETTINGS and key != "env_dir"}
    return {**given, "env": dict(args.env or ())}


def _form(key: str) -> dict[str, Any]:
    """Return what argparse needs to know of the argument of the option for this setting."""
    info, default = USER_SETTINGS[key], default_of(key)
    if default is False:
        return {"action": "store_true"}
    if info.const is not None:
        return {"action": "store_const", "const": info.const}
    if info.choices:
        return {"choices": info.choices}
    by_default = {int: int, float: span, type(None): span}.get(type(default))
    action = "append" if isinstance(default, tuple | dict) else "store"
    return {"metavar": info.metavar, "type": _TYPES.get(key, by_default), "action": action}


def _assignment(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _time_limit(text: str) -> str:
    """The type of --time: as Slurm writes it."""
    if not text or durations.is_limit(text):
        return text
    seconds = durations.seconds_of(text) if text[-1:].isalpha() else None
    if not seconds:
        raise argparse.ArgumentTypeError(
            f"{text!a} is not a time limit such as 30m, 8h, 4:00:00, 90 (minutes)"
        )
    return durations.limit(int(seconds))


def _sbatch_option(line: str) -> str:
    """The type of --sbatch: also a line from a batch script."""
    return line.strip().removeprefix("#SBATCH").strip()


_TYPES: dict[str, Any] = {"env": _assignment, "time": _time_limit, "sbatch": _sbatch_option}
