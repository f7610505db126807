"""Programs that run notebooks: nbclient, papermill, jupyter console and nbconvert, as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from remote import Remote
from waiting import DEADLINE

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote")]

CELLS = [
    "print('first')",
    "import os\nos.environ['CUDA_VISIBLE_DEVICES']",
    "from IPython.display import display\nhandle = display('before', display_id=True)\nhandle.update('after')",
    "import sys\nfor i in range(2000):\n    print(i)\nprint('oops', file=sys.stderr)",
    "1 / 0",
    "'after the error'",
]


def notebook(*cells: str) -> Any:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


def texts(cell: Any, name: str = "stdout") -> str:
    return "".join(
        output.text for output in cell.outputs if output.output_type == "stream" and output.name == name
    )


def values(cell: Any) -> list[str]:
    return [output.data["text/plain"] for output in cell.outputs if "data" in output]


@pytest.mark.parametrize("spec", ["gpu", "gpu-argv"])
def test_nbclient(remote: Remote, spec: str) -> None:
    book = notebook(*CELLS)
    NotebookClient(book, kernel_name=spec, timeout=int(DEADLINE), allow_errors=True).execute()
    first, gpu, updated, lines, error, last = book.cells
    assert texts(first) == "first\n"
    assert values(gpu)[0].strip("'") in remote.free
    assert values(updated) == ["'after'"]
    assert texts(lines) == "".join(f"{i}\n" for i in range(2000))
    assert texts(lines, "stderr") == "oops\n"
    assert [output.ename for output in error.outputs] == ["ZeroDivisionError"]
    assert values(last) == ["'after the error'"]
    remote.nothing_left()


def test_nbclient_says_which_cell_failed_and_leaves_nothing(remote: Remote) -> None:
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        NotebookClient(notebook("1 / 0"), kernel_name="cpu", timeout=int(DEADLINE)).execute()
    remote.nothing_left()


def test_nbclient_says_that_the_kernel_died(remote: Remote) -> None:
    with pytest.raises((DeadKernelError, CellExecutionError), match=r"Kernel died|the kernel ended"):
        NotebookClient(notebook("import os; os._exit(3)"), kernel_name="cpu", timeout=int(DEADLINE)).execute()
    remote.nothing_left()


# papermill's dependencies use what newer Pythons deprecate; it is not ours to mend
@pytest.mark.filterwarnings("ignore::DeprecationWarning:papermill")
@pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")
def test_papermill(remote: Remote, tmp_path: Path) -> None:
    papermill = pytest.importorskip("papermill", reason="pip install papermill")
    book = notebook("x = 1", "print('x is', x)", "import os; os.environ['CUDA_VISIBLE_DEVICES']")
    book.cells[0].metadata["tags"] = ["parameters"]
    book.metadata["kernelspec"] = {"name": "gpu", "display_name": "Remote GPU (gpu)", "language": "python"}
    nbformat.write(book, tmp_path / "in.ipynb")
    done = papermill.execute_notebook(
        tmp_path / "in.ipynb", tmp_path / "out.ipynb", parameters={"x": 42}, progress_bar=False, cwd=tmp_path
    )
    assert texts(done.cells[2]) == "x is 42\n"
    assert values(done.cells[3])[0].strip("'") in remote.free
    remote.nothing_left()


@pytest.mark.parametrize("spec", ["cpu", "cpu-argv"])
def test_jupyter_console(remote: Remote, spec: str) -> None:
    """It sends shutdown_request and then expects the end."""
    command = [sys.executable, "-m", "jupyter_console", "--kernel", spec, "--simple-prompt"]
    done = subprocess.run(
        command,
        input="print('six', 2 * 3)\n1 / 0\nprint('seven', 7)\nexit\n",
        env=remote.program_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stderr
    assert "six 6" in done.stdout and "seven 7" in done.stdout
    assert "ZeroDivisionError" in done.stdout + done.stderr
    remote.nothing_left()


@pytest.mark.parametrize("spec", ["cpu", "cpu-argv"])
def test_jupyter_run(remote: Remote, spec: str, tmp_path: Path) -> None:
    """It ends its kernel while Python exits."""
    (tmp_path / "program.py").write_text("print('six', 2 * 3)\n")
    command = [sys.executable, "-m", "jupyter", "run", "--kernel", spec, str(tmp_path / "program.py")]
    environment = remote.program_environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0 and done.stdout == "six 6\n"
    assert "Traceback" not in done.stderr
    remote.nothing_left()


def test_jupyter_nbconvert(remote: Remote, tmp_path: Path) -> None:
    nbformat.write(notebook("print('converted', 6 * 7)"), tmp_path / "book.ipynb")
    command = [sys.executable, "-m", "jupyter", "nbconvert", "--to", "markdown", "--execute", "--stdout"]
    command += ["--ExecutePreprocessor.kernel_name=cpu", str(tmp_path / "book.ipynb")]
    done = subprocess.run(
        command, env=remote.program_environment(), capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.returncode == 0, done.stderr
    assert "converted 42" in done.stdout
    remote.nothing_left()
