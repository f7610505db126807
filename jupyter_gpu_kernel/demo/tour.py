"""The two notebooks of the demo in JupyterLab: one on the practice work node, and one with a local kernel that
disturbs it. This module has their text and cells only.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import cast

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from . import gpus
from .cluster import LOGIN, WORK
from .show import GPU, WHERE

STORY, TROUBLE = "demo.ipynb", "trouble.ipynb"
NUMBERS = 90  # printed by the long cell, one a second
_REAL_GPUS = "the GPUs are the real GPUs of this machine"
_SIMULATED_GPUS = f"the GPUs are simulated (`{gpus.NAME}`: they can be leased, but compute nothing)"
_NOT_BUILT = """
> **The JupyterLab extension is missing.** It is not built: npm was not found, or the build failed. The kernel works,
> but there is no item in the status bar, and a reloaded page does not restore outputs: run
> `%gpu missed` in a cell for that. To build it, install Node.js (20.19 or newer), end the demo with Ctrl-C in its
> terminal, and run `make demo LAB=1` again.
"""

# Markdown and code alternate; the first cell is Markdown.
_STORY = (
    """# A GPU kernel on another machine

The kernel of this notebook runs on the work node `{work}`. It is reached by SSH through `{login}`.

**What is simulated:** both nodes are this machine, behind the demo's own SSH server; {gpus}.
Everything else is real: the SSH connection, the kernel, the SIGTERM.
{missing}
Open [{trouble}]({trouble}) now, and drag its tab to the right, so that you see both notebooks. You cause the failures
of this demo there.

## 1. The first cell takes a GPU

Opening a notebook takes no GPU. Look at the status bar at the bottom left: it says `{host} (no GPU yet)`, with the host
name of the work node. Run this cell. It waits about a second while the GPUs are sampled, and gets one that nobody uses.
(The simulated GPU 0 is in use by another user, so it is not taken.) Then the status bar says `{host} (1 GPU)`. Point at
it for details.""",
    f"{WHERE}\n\n{GPU}",
    """## 2. A long cell

It prints a number every second, {numbers} in total. Run it, and do sections 3 to 6 while it runs. If it ends, run it
again.""",
    f"""import time

numbers = []
for number in range({NUMBERS}):
    numbers.append(number)
    print(f"#{{number:02d}} ", end="\\n" if number % 10 == 9 else "", flush=True)
    time.sleep(1)""",
    """## 3. Cut the link

Run `cut(10)` in {trouble}. The status bar says `{host}: out of reach, reconnecting…`, and no numbers arrive. The
kernel keeps running. When the link is back, the numbers that it printed meanwhile arrive at once, and none is
missing.

When the long cell has ended, cut the link once more and run the cell below at once. After 3 seconds it says that
the node is out of reach and that the cell waits. When the link is back, the cell runs, and the text disappears.""",
    """print("This ran after", numbers[-1])""",
    """## 4. SIGTERM

Start the long cell again if it has ended, and run `sigterm()` in {trouble}: this is what a scheduler or an
administrator does. The long cell shows who sent the signal, and goes on. (A second SIGTERM of your own within 5 seconds
ends the kernel.)

## 5. Reload the page

Reload this page in the browser while the long cell runs. The numbers that were printed meanwhile appear in the
cell, and further ones follow.

## 6. Restart the server and return

Save this notebook (Ctrl+S) while the long cell runs, and run `restart_server(5)` in {trouble}. The Jupyter server
stops. Its local kernels end; this kernel does not. JupyterLab says that it has lost the server. Reload the page when
the server has started again: the notebook finds its kernel, and the cell shows the output that it printed meanwhile.

## 7. What the kernel knows

The process, the variables and the GPU are the same, and `sigterms` counts the SIGTERMs.""",
    """print(f"process {os.getpid()}: {len(numbers)} numbers, the last is {numbers[-1]}")
%gpu""",
    """Ctrl-C in the terminal of the demo stops JupyterLab, the kernel and the practice cluster, and removes the demo's
folder. File → Shut Down does the same.""",
)

_TROUBLE = (
    """# Failures for [{story}]({story})

The kernel of *this* notebook is an ordinary local one: its cells run on this side of the link.

## Cut the link

This closes the connections, and refuses new ones for the given number of seconds (at most 60).""",
    """from jupyter_gpu_kernel.demo.control import cut

cut(10)""",
    """## Send SIGTERM

This signals the kernel of {story}, from a process of the same user, since both nodes are this machine.""",
    """from jupyter_gpu_kernel.demo.control import sigterm

sigterm()""",
    """## List kernels and GPUs

The kernels on the work node, and the users of its GPUs: `jupyter gpu-kernel ps` and `jupyter gpu-kernel gpus`.""",
    """import sys

!{sys.executable} -m jupyter_gpu_kernel.cli ps
!{sys.executable} -m jupyter_gpu_kernel.cli gpus""",
    """## Is a number missing?

Save {story} first (Ctrl+S). This reads the outputs in the file.""",
    f"""import json

from jupyter_gpu_kernel.demo.show import numbers_in

for cell in json.load(open("{STORY}"))["cells"]:
    text = "".join("".join(output.get("text", "")) for output in cell.get("outputs", []))
    if shown := numbers_in(text):
        complete = shown == list(range(len(shown)))
        print(len(shown), "numbers,", "each once and in order" if complete else f"NOT complete: {{shown}}")""",
    """## Restart the server

The server starts again after the given number of seconds. The kernel of this notebook ends with the server, so this
cell does not finish. Reload the page after that; the address stays the same.""",
    """from jupyter_gpu_kernel.demo.control import restart_server

restart_server(5)""",
)


def notebooks(kernel: str, *, simulated: bool, extension: bool) -> dict[str, NotebookNode]:
    """Both notebooks by file name, without outputs. `extension`: whether the JupyterLab extension is built."""
    words = {
        "work": WORK,
        "host": socket.gethostname(),
        "login": LOGIN,
        "story": STORY,
        "trouble": TROUBLE,
        "numbers": NUMBERS,
        "gpus": _SIMULATED_GPUS if simulated else _REAL_GPUS,
        "missing": "" if extension else _NOT_BUILT,
    }
    return {
        STORY: _notebook(kernel, _STORY, words),
        TROUBLE: _notebook("python3", _TROUBLE, words),
    }


def _notebook(kernel: str, cells: Sequence[str], words: Mapping[str, object]) -> NotebookNode:
    """Cells have ids, as in nbformat 4.5: a reloaded page needs them to restore outputs."""
    spec = {"name": kernel, "display_name": kernel, "language": "python"}
    notebook = new_notebook(metadata={"kernelspec": spec})  # type: ignore[no-untyped-call]
    for number, text in enumerate(cells):
        new = new_code_cell if number % 2 else new_markdown_cell
        source = text if number % 2 else text.format_map(words)
        notebook.cells.append(new(source, id=f"cell-{number}"))  # type: ignore[no-untyped-call]
    return cast(NotebookNode, notebook)
