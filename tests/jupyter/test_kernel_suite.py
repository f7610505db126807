"""Jupyter's own suite for kernels, on a remote one: what ipykernel passes on this machine it passes from afar."""

# ruff: noqa: RUF012 (the suite's attributes are lists)

from __future__ import annotations

import pytest

jupyter_kernel_test = pytest.importorskip("jupyter_kernel_test", reason="pip install jupyter_kernel_test")

pytestmark = [
    pytest.mark.usefixtures("remote"),
    # The suite compares versions with a class of the standard library's that is deprecated.
    pytest.mark.filterwarnings("ignore:distutils Version classes are deprecated:DeprecationWarning"),
]


class TestRemoteKernel(jupyter_kernel_test.KernelTests):
    kernel_name = "cpu"
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = [{"text": "zi", "matches": {"zip"}}]
    complete_code_samples = ["1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n"]
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2"]
    invalid_code_samples = ["import = 7q"]
    code_page_something = "zip?"
    code_generate_error = "raise"
    code_execute_result = [
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
    ]
    code_display_data = [
        {
            "code": "from IPython.display import HTML, display; display(HTML('<b>test</b>'))",
            "mime": "text/html",
        },
        {
            "code": "from IPython.display import Math, display; display(Math('\\\\frac{1}{2}'))",
            "mime": "text/latex",
        },
    ]
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "search")  # ipykernel calls its own session 0 in a range
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"


class TestRemoteKernelWithGpus(TestRemoteKernel):
    """The first cell waits until there is a GPU, and shows no more than others."""

    kernel_name = "gpu"


class TestRemoteWelcome(jupyter_kernel_test.IopubWelcomeTests):
    kernel_name = "cpu"
    support_iopub_welcome = True
