"""What was measured on what, in words."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path


def description(network: str) -> str:
    """The day, the revision, the machine and the versions."""
    packages = ("jupyter_client", "ipykernel", "jupyter_server", "paramiko", "sshpyk")
    return (
        f"{datetime.date.today()}{_revision()}; {os.cpu_count()} cores for all ends ({_processor()}), {_memory()}, "
        f"{platform.system()} {platform.release().split('-')[0]}, {_ssh()}, Python {platform.python_version()}, "
        f"{', '.join(f'{name} {_version(name)}' for name in packages if _version(name))}; both nodes on this "
        f"machine, behind {network}"
    )


def _revision() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git here
        return ""
    return f", revision {shown}" if shown else ""


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _memory() -> str:
    return f"{round(os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30)} GiB"


def _ssh() -> str:
    shown = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=False).stderr
    return shown.partition(",")[0].split(" ")[0].replace("_", " ").strip()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
