"""`jupyter gpu-kernel VERB`. This module imports little, as each kernel that is started by argv keeps a `launch`.

app: the application, which runs a verb; verb, verbs: the base of the verbs, and the short verbs; arguments: the types
of their arguments; terminal: progress and questions; kernelspecs: the verbs for kernelspecs that exist; editors: the
verbs for editors. add/: the verb `add`; running/: the verbs for running kernels; show/: tables.

The exit status is 0; 1 after an error, with a message on stderr; 2 for bad usage.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from ..errors import GpuKernelError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program. Return the exit status: 0, or 1 after an error; SystemExit with 2 for bad usage."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # the terminal's encoding may lack our quotes and arrows
    try:
        try:
            return _run(sys.argv[1:] if argv is None else argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe (`| head`)
        _discard_output()
        return 1
    except OSError as error:
        _discard_output()
        what = error.filename or "reading or writing failed"
        _print_error(
            GpuKernelError(
                f"{what}: {error.strerror or error}", remedy="Free disk space, or check the permissions."
            )
        )
        return 1
    except GpuKernelError as error:
        _print_error(error)
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return 130


def _discard_output() -> None:
    """Send further output to /dev/null, so that the flush at this process's exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv: Sequence[str]) -> int:
    # As kernelspecs write it, without options.
    if len(argv) == 4 and argv[0] == "launch" and argv[2] == "-f" and not argv[1].startswith("-"):
        from ..launcher import launch

        return launch(argv[1], argv[3])
    from .app import run

    return run(argv)


def _print_error(error: GpuKernelError) -> None:
    from .verb import print_error

    print_error(error)
