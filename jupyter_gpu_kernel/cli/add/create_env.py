"""`add --create-env`: plan a virtual environment on the node, download its wheels here, ask the user, and make it."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import ConnectError, SettingsError
from ...wire.kernel_settings import KernelSettings
from ...wire.texts import printable
from ..terminal import Progress, agrees, can_ask
from .wheels import Machine, Wheel, download

PACKAGES = ("ipykernel>=6.20", "pip")
"""What is installed, with all that it requires; pip, so that users can install what they need."""

Ask = Callable[..., Any]


def add_arguments(group: argparse._ArgumentGroup) -> None:
    """Declare the options."""
    add = group.add_argument
    add(
        "--create-env",
        action="store_true",
        help="make a virtual environment with ipykernel on the node, from a Python 3.8 or newer there, and use it; the "
        "packages are downloaded here and sent, so the node needs no internet access",
    )
    add(
        "--env-dir",
        metavar="DIR",
        default="",
        help="the folder of that environment (default: ~/.local/share/jupyter-gpu-kernel-envs/NAME on the node)",
    )
    add("--yes", action="store_true", help="with --create-env: do not ask before the environment is made")


def usage_fault(args: argparse.Namespace) -> str:
    """Return why these options do not go together, or ""."""
    if args.create_env and args.no_probe:
        return "--create-env must connect to the node; omit --no-probe."
    if not args.create_env and (args.env_dir or args.yes):
        return "--env-dir and --yes belong to --create-env."
    if args.env_dir and not args.env_dir.startswith(("/", "~/")):
        return "--env-dir must be an absolute path on the node, or begin with ~/."
    return ""


def create(
    args: argparse.Namespace, settings: KernelSettings, name: str, ask: Ask
) -> tuple[KernelSettings, list[dict[str, Any]]]:
    """Make the environment on the node, or on each of several hosts that does not share it.

    Return the settings with `python` and `env_dir`, and what was made or found: [{"node", "path", "created", …}].
    """
    made: list[dict[str, Any]] = []
    unreachable: ConnectError | None = None
    for one in settings.each_host():
        try:
            plan = ask("plan_environment", settings=one.to_json(), name=name, env_dir=args.env_dir)
        except ConnectError as error:  # the probe says so; kernels start on the others
            unreachable = error
            continue
        if plan["state"] == "ours":
            shown = {key: plan[key] for key in ("node", "path", "packages")}
            made.append({**shown, "python": f"{plan['path']}/bin/python", "created": False})
            _say(args, [f"{plan['node']}: the environment {plan['path']} is there already, and is used."])
        else:
            made.append(_create_one(args, one, name, plan, ask))
    if not made and unreachable is not None:
        raise unreachable
    if any(each["path"] != made[0]["path"] for each in made):
        paths = ", ".join(f"{each['node']}: {each['path']}" for each in made)
        raise SettingsError(
            f"the home folders of the hosts differ, so that their environments have different paths: {paths}",
            remedy="Name one path that all hosts have with --env-dir DIR.",
        )
    return settings.replace(python=made[0]["python"], env_dir=made[0]["path"]), made


def _create_one(
    args: argparse.Namespace, settings: KernelSettings, name: str, plan: dict[str, Any], ask: Ask
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="jupyter-gpu-kernel-") as temporary:
        folder = Path(temporary) / "wheels"
        folder.mkdir()
        wheels = _download(args, plan, folder)
        _say(args, _described(plan, wheels, name, settings.slurm))
        _require_consent(args)
        packages = [(wheel.name, str(wheel.version)) for wheel in wheels]
        archive = shutil.make_archive(str(folder), "zip", folder)
        more = {"plan": plan, "archive": archive, "wanted": list(PACKAGES), "packages": packages}
        made: dict[str, Any] = ask("create_environment", settings=settings.to_json(), **more)
    _say(args, [f"Made: {plan['path']} ({len(packages)} packages, {made['mib']} MiB)"])
    facts = {"base": plan["python"], "version": plan["version"], "packages": packages, "tool": "venv"}
    made.update(facts, path=plan["path"], python=f"{plan['path']}/bin/python", created=True)
    return made


def _download(args: argparse.Namespace, plan: dict[str, Any], folder: Path) -> list[Wheel]:
    progress = Progress(lines=not args.json)
    machine = Machine(plan["machine"], plan["libc"], plan["version"], plan["abi"])
    try:
        return download(PACKAGES, machine, folder, lambda text: progress({"hop": "", "step": text}))
    finally:
        progress.clear()


def _described(plan: dict[str, Any], wheels: list[Wheel], name: str, slurm: bool) -> list[str]:
    """Return the lines that say what will be made."""
    setup = ", which the set-up lines bring" if plan.get("setup") else ""
    packages = ", ".join(f"{wheel.name} {wheel.version}" for wheel in wheels)
    replaced = "; what is left of an earlier one is replaced" if plan["state"] == "left" else ""
    mib = sum(wheel.path.stat().st_size for wheel in wheels) / (1 << 20)
    lines = [
        f"{plan['node']}: this virtual environment will be made, and used by the kernelspec {name}:",
        f"  folder    {plan['path']}{replaced}",
        f"  Python    {plan['python']} ({plan['version']}){setup}",
        f"  packages  {packages}",
        f"  size      {mib:.0f} MiB are sent from here; unpacked, it takes about four times as much",
    ]
    if plan["path"].startswith(("/tmp/", "/var/tmp/", "/dev/shm/")):
        lines.append("  note      that folder is on this node only, and may be cleaned")
    if slurm:
        lines.append(
            "  note      made here, on the login node; the jobs' nodes need this folder and that Python, too"
        )
    return lines


def _require_consent(args: argparse.Namespace) -> None:
    """Return if the user agrees. Raises SettingsError if not, or if nobody can be asked."""
    if args.yes:
        return
    if not can_ask():
        raise SettingsError(
            "the environment was not made, as nobody could be asked",
            remedy="Run this command in a terminal, or add --yes to agree beforehand.",
        )
    if not agrees("Make it?", by_default=True):
        raise SettingsError("the environment was not made", remedy="Nothing was changed.")


def _say(args: argparse.Namespace, lines: list[str]) -> None:
    """Print lines; with --json on stderr, where they do not disturb."""
    print("\n".join(map(printable, lines)), file=sys.stderr if args.json else sys.stdout, flush=True)
