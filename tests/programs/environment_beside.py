"""Makes an environment for JupyterLab with one more package: `environment_beside.py FOLDER PACKAGE`.

All else is that of the environment whose Python runs this: imported from there, and linked where it is data.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

folder, package = Path(sys.argv[1]), sys.argv[2]
venv.create(folder, clear=True)
site = sysconfig.get_path("purelib")
(own,) = folder.glob("lib/python*/site-packages")
(own / "all_else.pth").write_text(f"import site; site.addsitedir({site!r})\n")  # with its own .pth files
subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", package], check=True)


def link(source: Path, target: Path) -> None:
    """A link to what is not there; JupyterLab serves folders that are links, but no file that is one."""
    if not target.exists():
        target.symlink_to(source)
    elif source.is_dir() and not target.is_symlink():
        for each in source.iterdir():
            link(each, target / each.name)


for name in ("share/jupyter", "etc/jupyter"):
    (folder / name).mkdir(parents=True, exist_ok=True)
    for each in Path(sys.prefix, name).iterdir():
        link(Path(os.path.abspath(each)), folder / name / each.name)
