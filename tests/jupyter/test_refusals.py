"""A kernel that cannot start: front ends get one readable text with hop, cause and remedy, and nothing is left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from jupyter_client.manager import KernelManager
from remote import Remote
from sshd import free_port, make_key
from waiting import DEADLINE

from jupyter_gpu_kernel.client import HubClient

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote")]


class Refusal(NamedTuple):
    """How the kernelspec is spoilt, and what the text must then say."""

    settings: Callable[[Remote, Path], dict[str, Any]]
    hop: str
    cause: str
    remedy: str


def config(remote: Remote, folder: Path, old: str, new: str) -> dict[str, Any]:
    text = remote.hops.ssh_config.read_text()
    assert old in text
    file = folder / "ssh_config"
    file.write_text(text.replace(old, new))
    return {"config": str(file)}


def wrong_port(remote: Remote, folder: Path) -> dict[str, Any]:
    return config(remote, folder, f"Port {remote.hops.login.port}", f"Port {free_port()}")


def wrong_work_port(remote: Remote, folder: Path) -> dict[str, Any]:
    return config(remote, folder, f"Port {remote.hops.work.port}", f"Port {free_port()}")


def unknown_name(remote: Remote, folder: Path) -> dict[str, Any]:
    return config(remote, folder, "HostName 127.0.0.1", "HostName nowhere.invalid")


def changed_host_key(remote: Remote, folder: Path) -> dict[str, Any]:
    kind, blob, *_ = Path(f"{make_key(folder / 'other')}.pub").read_text().split()
    known = folder / "known_hosts"
    known.write_text(f"[127.0.0.1]:{remote.hops.login.port} {kind} {blob}\n")
    return config(remote, folder, str(remote.hops.known_hosts), str(known))


def unknown_host_key(remote: Remote, folder: Path) -> dict[str, Any]:
    known = folder / "known_hosts"
    known.write_text(remote.hops.login.known_hosts_line())
    return config(remote, folder, str(remote.hops.known_hosts), str(known))


def wrong_key(remote: Remote, folder: Path) -> dict[str, Any]:
    return config(remote, folder, str(remote.hops.key), str(make_key(folder / "stranger")))


def no_python(remote: Remote, folder: Path) -> dict[str, Any]:
    return {"python": "/nowhere/bin/python"}


def bare_python(remote: Remote, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder / "bare")]
    subprocess.run(command, check=True, timeout=DEADLINE)
    return {"python": str(folder / "bare" / "bin" / "python")}


def broken_ipykernel(remote: Remote, folder: Path) -> dict[str, Any]:
    (folder / "broken" / "ipykernel").mkdir(parents=True)
    (folder / "broken" / "ipykernel" / "__init__.py").write_text("raise ImportError('broken on purpose')\n")
    return {"env": {"PYTHONPATH": str(folder / "broken")}}


def no_folder(remote: Remote, folder: Path) -> dict[str, Any]:
    return {"cwd": "/nowhere/at/all"}


def failing_setup(remote: Remote, folder: Path) -> dict[str, Any]:
    return {"setup": ['module() { echo "no module $2" >&2; return 1; }', "module load cuda || exit 1"]}


REFUSALS = [
    Refusal(wrong_port, "login", "connection refused", "port"),
    Refusal(wrong_work_port, "work", "connection refused", "port"),
    Refusal(unknown_name, "login", "nowhere.invalid", ""),
    Refusal(changed_host_key, "login", "changed", "known_hosts"),
    Refusal(unknown_host_key, "work", "not known", "login"),
    Refusal(wrong_key, "login", "key", ""),
    Refusal(no_python, "work", "/nowhere/bin/python", "gpu-kernel"),
    Refusal(bare_python, "work", "lacks pyzmq and ipykernel", "pip install"),
    Refusal(broken_ipykernel, "work", "ImportError: broken on purpose", "by hand"),
    Refusal(no_folder, "work", "/nowhere/at/all", ""),
    Refusal(failing_setup, "work", "no module cuda", ""),
]


def test_check_shows_what_went_well_before(remote: Remote, tmp_path: Path) -> None:
    spec = remote.write("spoilt", **wrong_work_port(remote, tmp_path))
    with HubClient() as hub:
        *before, failed = hub.call("check", settings=spec.settings.to_json(), name="spoilt", timeout=DEADLINE)
    assert [(row["hop"], row["step"]) for row in before] == [
        ("login", step) for step in ("reach", "host key", "sign in")
    ]
    assert all(row["ok"] for row in before)
    assert (failed["hop"], failed["step"], failed["ok"]) == ("work", "reach", False)
    assert "connection refused" in failed["message"] and "port" in failed["remedy"]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.settings.__name__)
def test_the_text_says_hop_cause_and_remedy(remote: Remote, tmp_path: Path, refusal: Refusal) -> None:
    remote.write("spoilt", provisioner=True, **refusal.settings(remote, tmp_path))
    manager = KernelManager(kernel_name="spoilt")
    with pytest.raises(RuntimeError) as caught:
        manager.start_kernel()
    text = str(caught.value)
    assert text.startswith(f"{refusal.hop}: ")
    assert refusal.cause in text
    assert len(text.splitlines()) >= 2 and refusal.remedy in text
    assert "Traceback" not in text
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    assert not manager.has_kernel or not manager.is_alive()
    remote.nothing_left()


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["--cwd", "/nowhere/at/all"], "there is no folder /nowhere/at/all"),
        (["--cwd", "/", "--code", "nope"], "git finds no repository with files at /"),
        (["--gpus", "9"], "9 GPUs requested, but this node has 4"),
        (["--gpu-type", "h100"], "its name does not contain “h100”"),
        (["--min-memory", "200G"], "186.3 GiB are requested"),
        (["--setup", "exit 3"], "they ended with exit status 3"),
    ],
    ids=lambda words: str(words[0]),
)
def test_add_refuses_what_can_never_start(remote: Remote, words: list[str], cause: str) -> None:
    *jumps, destination = remote.hops.route
    way = ["-F", str(remote.hops.ssh_config), "-J", ",".join(jumps), "--python", sys.executable]
    added = remote.program("add", destination, *way, "--name", "impossible", *words)
    assert added.returncode == 1 and not added.stdout
    assert "work: " in added.stderr and cause in added.stderr and "Traceback" not in added.stderr
    assert "impossible" not in remote.program("list").stdout
