"""What a wheel carries and when it is built; what Jupyter finds of an installed package."""

from __future__ import annotations

import email
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[1]

# Stands in for npm: notes how it was called; `run build` and `run package` leave what the real builds leave.
NPM = f"""#!{sys.executable}
import pathlib, sys
with open("npm-calls", "a") as calls:
    print(*sys.argv[1:], file=calls)
if sys.argv[2:] == ["package"]:
    built = pathlib.Path("../jupyter_gpu_kernel/vscode_extension")
    built.mkdir(exist_ok=True)
    built.joinpath("remote-gpu.vsix").write_text("")
elif sys.argv[1] == "run":
    built = pathlib.Path("../jupyter_gpu_kernel/labextension")
    built.joinpath("static").mkdir(parents=True, exist_ok=True)
    built.joinpath("static/remoteEntry.js").write_text("")
    built.joinpath("package.json").write_text("{{}}")
    built.joinpath("schemas").mkdir(exist_ok=True)
    built.joinpath("schemas/package.json.orig").write_text("{{}}")
"""


class Checkout:
    """A copy of what a build reads, and a PATH on which only its own `npm` can be found."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.programs = root / "programs"
        self.programs.mkdir(parents=True)
        for name in ("pyproject.toml", "hatch_build.py", "install.json", "LICENSE", "README.md"):
            shutil.copy(ROOT / name, root)
        unwanted = ("labextension", "vscode_extension", "node_modules", "lib", "dist", "__pycache__")
        ignored = shutil.ignore_patterns(*unwanted)
        for name in ("jupyter_gpu_kernel", "jupyter-config"):
            shutil.copytree(ROOT / name, root / name, ignore=ignored)
        for name in ("labextension", "vscode"):
            shutil.copytree(ROOT / name, root / name, ignore=ignored)

    def add_npm(self) -> None:
        npm = self.programs / "npm"
        npm.write_text(NPM)
        npm.chmod(0o755)

    def build(self, target: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", target],
            cwd=self.root,
            env={**os.environ, "PATH": str(self.programs)},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def wheel(self, target: str = "wheel") -> list[str]:
        """The names in the wheel that a build makes."""
        done = self.build(target)
        assert done.returncode == 0, done.stderr
        (path,) = (self.root / "dist").glob("*.whl")
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
        path.unlink()
        return names

    def npm_calls(self, folder: str = "labextension") -> list[str]:
        calls = self.root / folder / "npm-calls"
        return calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    if sys.platform == "win32":
        pytest.skip("the stand-in for npm is a script with a #! line, which Windows does not run")
    return Checkout(tmp_path / "checkout")


def installs(names: list[str], path: str) -> bool:
    """Whether a wheel of these names installs something whose path below the environment starts so."""
    return any(name.partition(".data/data/")[2].startswith(path) for name in names)


LABEXTENSION = "share/jupyter/labextensions/jupyter-gpu-kernel/"
SERVER_CONFIG = "etc/jupyter/jupyter_server_config.d/jupyter_gpu_kernel.json"


def test_a_wheel_carries_what_the_front_ends_need(checkout: Checkout) -> None:
    checkout.add_npm()
    names = checkout.wheel()
    assert checkout.npm_calls() == ["ci --ignore-scripts", "run build"]
    assert checkout.npm_calls("vscode") == ["ci --ignore-scripts", "run package"]
    assert "jupyter_gpu_kernel/vscode_extension/remote-gpu.vsix" in names
    assert installs(names, LABEXTENSION + "static/remoteEntry.js")
    assert installs(names, LABEXTENSION + "package.json")
    assert not any(name.endswith(".orig") for name in names)
    assert installs(names, LABEXTENSION + "install.json")
    assert installs(names, SERVER_CONFIG)
    assert "jupyter_gpu_kernel/agent/__init__.py" in names  # the hub reads it as data
    assert "jupyter_gpu_kernel/py.typed" in names
    assert "jupyter_gpu_kernel/kernelspecs/logos/logo-svg.svg" in names


def test_a_wheel_carries_nothing_else(checkout: Checkout) -> None:
    checkout.add_npm()
    strangers = [
        name
        for name in checkout.wheel()
        if not re.match(r"jupyter_gpu_kernel/|jupyter_gpu_kernel-[^/]+\.(dist-info|data)/", name)
    ]
    assert strangers == []


def test_the_extension_is_built_again_only_when_its_sources_changed(checkout: Checkout) -> None:
    checkout.add_npm()
    checkout.wheel()
    checkout.wheel()
    assert checkout.npm_calls() == ["ci --ignore-scripts", "run build"]
    built = checkout.root / "jupyter_gpu_kernel" / "labextension" / "package.json"
    os.utime(built, (0, 0))
    checkout.wheel()
    assert checkout.npm_calls() == ["ci --ignore-scripts", "run build"] * 2


def test_the_metadata_is_complete(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://git.example.org")
    monkeypatch.setenv("GITHUB_REPOSITORY", "lab/jupyter-gpu-kernel")
    checkout.add_npm()
    assert checkout.build("wheel").returncode == 0
    (path,) = (checkout.root / "dist").glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
        assert any(one.endswith(".dist-info/licenses/LICENSE") for one in archive.namelist())
    assert metadata["License-Expression"] == "BSD-3-Clause" and metadata["Keywords"]
    urls = dict(one.split(", ") for one in metadata.get_all("Project-URL", []))
    assert set(urls) == {"Homepage", "Documentation", "Changelog", "Issues", "Source"}
    assert urls["Issues"] == "https://git.example.org/lab/jupyter-gpu-kernel/issues"
    named = {one.rpartition(" ")[2] for one in metadata.get_all("Classifier", [])}
    assert {"3.10", "3.11", "3.12", "3.13", "3.14"} <= named


def test_an_sdist_carries_the_built_extension(checkout: Checkout) -> None:
    checkout.add_npm()
    done = checkout.build("sdist")
    assert done.returncode == 0, done.stderr
    (path,) = (checkout.root / "dist").glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert "jupyter_gpu_kernel/labextension/static/remoteEntry.js" in names
    assert "jupyter_gpu_kernel/vscode_extension/remote-gpu.vsix" in names
    assert {"hatch_build.py", "labextension/src/index.ts", "vscode/src/extension.ts"} <= names


def test_without_npm_a_wheel_says_what_is_missing(checkout: Checkout) -> None:
    done = checkout.build("wheel")
    assert done.returncode != 0
    assert "npm is not on PATH" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_editable_install_needs_no_npm(checkout: Checkout) -> None:
    names = checkout.wheel("wheel:editable")
    assert installs(names, SERVER_CONFIG)
    assert not installs(names, LABEXTENSION + "static/")


@pytest.mark.parametrize(
    ("group", "name"),
    [("console_scripts", "jupyter-gpu-kernel"), ("jupyter_client.kernel_provisioners", "remote-gpu")],
)
def test_entry_points_lead_somewhere(group: str, name: str) -> None:
    (entry_point,) = {each.value: each for each in entry_points(group=group, name=name)}.values()
    assert callable(entry_point.load())


def test_the_enabled_server_extension_is_one() -> None:
    config = json.loads((ROOT / "jupyter-config/jupyter_server_config.d/jupyter_gpu_kernel.json").read_text())
    (name,) = config["ServerApp"]["jpserver_extensions"]
    points = importlib.import_module(name)._jupyter_server_extension_points()
    assert [point["module"] for point in points] != []
