"""Folders of wheels for pip's --find-links, so that tests need no network: small ones, and those of what is installed
here."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from email.parser import HeaderParser
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

_SKIPPED = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    requires: Iterable[str] = (),
    *,
    tag: str = "py3-none-any",
    python: str = ">=3.8",
    code: str = "",
) -> Path:
    """A wheel with one module."""
    info = f"{name}-{version}.dist-info"
    headers = [f"Name: {name}", f"Version: {version}", f"Requires-Python: {python}"]
    headers += [f"Requires-Dist: {one}" for one in requires]
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": "\n".join(["Metadata-Version: 2.1", *headers, ""]),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    return _write(
        folder / f"{name}-{version}-{tag}.whl", info, {key: one.encode() for key, one in files.items()}
    )


def repack(folder: Path, *names: str) -> None:
    """Wheels of installed packages, and of all that they require here."""
    done: set[str] = set()
    pending = list(names)
    while pending:
        found = distribution(pending.pop())
        name = found.metadata["Name"].lower().replace("-", "_")
        if name not in done:
            done.add(name)
            _repack(folder, name, found)
            requirements = map(Requirement, found.requires or ())
            pending += [
                one.name for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})
            ]


def _repack(folder: Path, name: str, found: Distribution) -> Path:
    files = {}
    info = ""
    for path in found.files or ():
        if path.parts[0] in ("..", "bin") or path.suffix == ".pyc" or path.name in _SKIPPED:
            continue
        if path.parts[:2] == ("jedi", "third_party"):  # 5,500 files for completions
            continue
        files[path.as_posix()] = Path(str(path.locate())).read_bytes()
        if path.parts[0].endswith(".dist-info"):
            info = path.parts[0]
    tags = [
        one.split("-") for one in HeaderParser().parsestr(str(found.read_text("WHEEL"))).get_all("Tag", [])
    ]
    tag = "-".join(".".join(dict.fromkeys(one[part] for one in tags)) for part in range(3))
    return _write(folder / f"{name}-{found.version}-{tag}.whl", info, files)


def _write(path: Path, info: str, files: dict[str, bytes]) -> Path:
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**files, f"{info}/RECORD": record.encode()}.items():
            archive.writestr(name, data)
    return path
