"""The verb `add`: connect as ssh would, find a Python and the GPUs, and write a kernelspec."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .. import kernelspecs
from ..errors import AuthError, HostKeyError, RouteError, SettingsError
from ..settings import TRANSPORTS, Settings, read_env_file
from ..wire import MAX_PRIORITY
from . import add_slurm, create_env, tables
from .add_hosts import common_python, hosts_result, working_hosts
from .terminal import printable
from .verb import Verb, add_json_option, print_json


class Add(Verb):
    verb = "add"
    summary = "Connect to a machine, find a Python and its GPUs, and add a kernelspec for all front ends."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        self._add_connection_arguments(parser)
        self._add_kernel_arguments(parser)
        self._add_gpu_arguments(parser)
        self._add_environment_arguments(parser)
        add_slurm.add_arguments(parser)
        create_env.add_arguments(parser)
        add = parser.add_argument
        add("--no-probe", action="store_true", help="write the kernelspec without connecting")
        add("--replace", action="store_true", help="overwrite a kernelspec of the same name")
        add(
            "--prefix",
            metavar="DIR",
            help="write one kernelspec under DIR/share/jupyter, and change no other",
        )
        add_json_option(parser)

    def _add_connection_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "destination",
            metavar="DESTINATION",
            nargs="?",
            help="user@host[:port], a Host of your ssh configuration, a pasted “ssh …” command, or localhost",
        )
        add(
            "--hosts",
            metavar="HOST[,HOST…]",
            action="append",
            default=[],
            help="several machines instead of DESTINATION: each kernel starts on the best one",
        )
        add(
            "-J",
            dest="jumps",
            metavar="HOP[,HOP…]",
            action="append",
            default=[],
            help="jump hosts, as for ssh",
        )
        add(
            "-i",
            dest="identity",
            metavar="KEY",
            action="append",
            default=[],
            help="a private key file; can be repeated",
        )
        add(
            "-F",
            dest="config",
            metavar="SSH_CONFIG",
            help="an ssh configuration file to use instead of ~/.ssh/config",
        )
        add("-p", dest="port", metavar="PORT", type=int, help="the destination's SSH port")
        add(
            "--transport",
            choices=TRANSPORTS,
            default="auto",
            help="what speaks SSH: paramiko, or the system's ssh program; auto (the default) takes paramiko unless a "
            "host needs what only ssh can do, such as Kerberos or a ProxyCommand",
        )
        add(
            "--via",
            metavar="COMMAND",
            action="append",
            default=[],
            help="a command on DESTINATION that leads on: “ssh gpu2”, “docker exec -i box”; can be repeated",
        )

    def _add_kernel_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--name", metavar="NAME", help="the kernelspec's name (default: the host)")
        add(
            "--python",
            metavar="PATH",
            default="",
            help="the kernel's Python on the node, or with --create-env the one from which the environment is made "
            "(default: the best one found)",
        )
        add(
            "--sigterm",
            choices=["survive", "default"],
            default=Settings.sigterm,
            help=f"what SIGTERM does to a kernel in use (default: {Settings.sigterm})",
        )
        add(
            "--idle-timeout",
            metavar="SECONDS",
            type=float,
            help="when an idle kernel without a front end ends (default: 7200; 0: never)",
        )

    def _add_gpu_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "--gpus",
            metavar="N",
            type=int,
            default=Settings.gpus,
            help=f"how many GPUs a kernel takes (default: {Settings.gpus}; 0: none)",
        )
        add(
            "--min-memory",
            metavar="SIZE",
            default="",
            help="the memory that each GPU must have, without what the driver keeps: 20G, 20GiB (default: any)",
        )
        add(
            "--gpu-type",
            metavar="TEXT",
            default="",
            help="what the name of each GPU must contain: 3090, A100 (default: any)",
        )
        add(
            "--priority",
            metavar="N",
            type=int,
            default=Settings.priority,
            help=f"which of your kernels that wait for GPUs get them first: the highest, from -{MAX_PRIORITY} to "
            f"{MAX_PRIORITY} (default: {Settings.priority})",
        )
        add(
            "--ignore-lease",
            metavar="UUID",
            action="append",
            default=[],
            help="take this GPU although somebody else has its lease, if it is not used; can be repeated",
        )

    def _add_environment_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "--env",
            metavar="NAME=VALUE",
            type=_assignment,
            action="append",
            default=[],
            help="a variable of the kernel's environment; can be repeated",
        )
        add(
            "--env-file",
            metavar="FILE",
            default="",
            help="a file of NAME=VALUE lines that only you can read; for secrets",
        )
        add(
            "--cwd",
            metavar="DIR",
            default="",
            help="the kernel's working directory (default: your home folder)",
        )
        add(
            "--code",
            metavar="REV",
            default="",
            help="run the code of this git revision: the kernel works in a worktree of --cwd at that commit",
        )
        add(
            "--setup",
            metavar="LINE",
            action="append",
            default=[],
            help="a shell line to run before the kernel starts; can be repeated",
        )

    def run(self) -> int:
        args = self.args
        if bool(_hosts(args.hosts)) == bool(args.destination):
            sys.stderr.write("Give DESTINATION, or --hosts HOST,HOST for several machines, and not both.\n")
            return 2
        if fault := create_env.usage_fault(args):
            sys.stderr.write(f"{fault}\n")
            return 2
        settings = self._settings()
        hosts = settings.get("hosts") or settings["route"][-1:]
        nodes = args.via[-1:] if args.via and len(hosts) == 1 else hosts
        name = args.name if args.name is not None else "-".join(map(_default_name, nodes))
        kernelspecs.check_name(name, prefix=args.prefix, replace=args.replace)
        probe = None
        if args.no_probe and args.python[:1] not in ("", "/"):
            raise SettingsError(
                f"{args.python} is not an absolute path",
                remedy="Give the absolute path, or omit --no-probe to search for it on the node.",
            )
        made = create_env.create(args, settings, name.lower(), self._ask_node) if args.create_env else []
        if not args.no_probe:
            probe = self._ask_node("probe", settings=settings)
            if "hosts" in probe:
                settings["python"] = common_python(working_hosts(probe["hosts"]))
            else:
                settings["route"] = probe["route"]
                settings["python"] = probe["python"]["path"]
                settings |= probe.get("slurm", {}).get("chosen", {})
        notes = create_env.carry_over(settings, name)
        spec = kernelspecs.write(name, settings, prefix=args.prefix, replace=args.replace)
        shown = {
            "name": spec.name,
            "display_name": spec.display_name,
            "path": str(spec.path),
            "settings": spec.settings,
        }
        if args.json:
            print_json({**shown, "probe": probe, **({"environments": made} if made else {})})
        else:
            found = _probes_result(probe, settings) if probe else []
            print("\n".join([*found, *map(printable, notes), *_next_step(spec)]))
        return 0

    def _ask_node(self, op: str, **arguments: Any) -> Any:
        try:
            return self.ask_hub(op, lines=not self.args.json, **arguments)
        except (AuthError, HostKeyError) as error:  # `login` needs a kernelspec, which does not exist yet
            error.fill_in(
                "once in a terminal: jupyter gpu-kernel login NAME", "by running this command in a terminal"
            )
            raise

    def _settings(self) -> dict[str, Any]:
        """The settings that the arguments describe, checked before anything connects."""
        from ..hub.ssh.route import parse_route

        args = self.args
        config, identity = _absolute(args.config), [_absolute(key) for key in args.identity]
        if config and not os.path.isfile(config):
            raise RouteError(f"there is no file {config}", remedy="Check the path given with -F.")
        hosts = _hosts(args.hosts)

        def destinations(host: str, jumps: Sequence[str]) -> list[str]:
            port = args.port
            hops = parse_route(host, jumps, identity=identity, config=config or None, port=port)
            return [hop.destination for hop in hops]

        routes = [destinations(host, args.jumps) for host in hosts or [args.destination]]
        route = _common_route(routes, destinations)
        if args.env_file:
            read_env_file(_absolute(args.env_file))
        settings = Settings(
            route=tuple(route),
            hosts=tuple(dict.fromkeys(one[-1] for one in routes)) if hosts else (),
            identity=tuple(identity),
            config=config,
            via=tuple(args.via),
            transport=args.transport,
            python=args.python,
            gpus=args.gpus,
            min_memory=args.min_memory,
            gpu_type=args.gpu_type,
            priority=args.priority,
            ignore_lease=tuple(args.ignore_lease),
            env=dict(args.env),
            env_file=_absolute(args.env_file),
            cwd=args.cwd,
            code=args.code,
            setup=tuple(args.setup),
            sigterm=args.sigterm,
            idle_timeout=args.idle_timeout,
            **add_slurm.settings(args),
        ).to_json()
        return Settings.from_json(settings).to_json()  # which checks the numbers


def _hosts(texts: Sequence[str]) -> list[str]:
    from ..hub.ssh.route import split_jumps

    return [host for text in texts for host in split_jumps(text)]


def _common_route(
    routes: list[list[str]], destinations: Callable[[str, Sequence[str]], list[str]]
) -> list[str]:
    """The route of the first host, with the jump hosts that all share. Those that differ must be in the ssh
    configuration, from which each start reads them."""
    first = routes[0]
    if all(one[:-1] == first[:-1] for one in routes):
        return first
    for one in routes:
        if destinations(one[-1], ()) != one:
            cause = "the hosts have different jump hosts"
            raise RouteError(cause, hop=one[-1], remedy="Put their ProxyJump into the ssh configuration.")
    return first[-1:]


def _absolute(path: str | None) -> str:
    return os.path.abspath(os.path.expanduser(path)) if path else ""


def _assignment(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _default_name(hop: str) -> str:
    """The host of the last hop, or the last word of a command, as a kernelspec's name can have it."""
    words = [word for word in hop.split() if not word.startswith("-")] or [hop]
    host = words[-1].rpartition("@")[2].rpartition("/")[2]
    host = re.sub(r":\d+$", "", host) if host.count(":") == 1 or "]" in host else host
    return re.sub(r"[^a-z0-9._-]+", "-", host.lower()).strip("-.") or "gpu"


def _probes_result(probe: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    if "hosts" not in probe:
        return _probe_result(probe, settings) + _unknown_leases([probe], settings)
    lines = hosts_result(probe["hosts"], lambda one: _probe_result(one, settings))
    return lines + _unknown_leases(probe["hosts"], settings)


def _unknown_leases(probes: list[dict[str, Any]], settings: dict[str, Any]) -> list[str]:
    """Notes about --ignore-lease, if the GPUs of all hosts are known."""
    if not all(one.get("gpus") for one in probes):
        return []
    known = {gpu.get("uuid") for one in probes for gpu in one["gpus"]}
    unknown = [uuid for uuid in settings.get("ignore_lease", ()) if uuid not in known]
    return [f"Note: there is no GPU {uuid}, which --ignore-lease names." for uuid in unknown]


def _probe_result(probe: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    lines = [f"  {hop['hop']}: {hop['step']} {hop['seconds']:.2f} s" for hop in probe["hops"]]
    python, node = probe["python"], probe["node"]
    lines.append(f"Python: {python['path']} ({python['version']}, ipykernel {python['ipykernel']})")
    lines += [f"  not used: {other['path']} {other['why_not']}" for other in probe["others"]]
    lines += [f"  not searched: {place}" for place in probe.get("unseen", [])]
    if node.get("home_problem"):
        lines.append(
            f"Note: the node's home folder {node.get('home')} is not writable: {node['home_problem']}"
        )
    if "slurm" in probe:
        lines += add_slurm.result(probe["slurm"], settings)
    elif probe["gpus"]:
        lines.append(tables.gpus(probe["gpus"]))
        if probe.get("gpus_problem"):
            lines.append(f"Note: this kernel cannot get GPUs on this node: {probe['gpus_problem']}")
    elif probe.get("gpus_error"):
        lines.append(f"Note: the GPUs could not be listed: {probe['gpus_error']}")
    elif settings["gpus"]:
        lines.append("Note: this machine has no GPU. With --gpus 0 the kernel does not wait for one.")
    return [printable(line) for line in lines]


def _next_step(spec: kernelspecs.Spec) -> list[str]:
    other = kernelspecs.shadowed_by(spec)
    note = (
        [f"Note: front ends of this environment use another kernelspec of this name: {other}"]
        if other
        else []
    )
    return [
        f"Written: {spec.path}",
        *note,
        f"Select “{spec.display_name}” in JupyterLab, or in VS Code: Select Kernel → Jupyter Kernel…",
    ]
