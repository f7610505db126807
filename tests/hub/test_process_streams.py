"""Programs of this machine that carry streams."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

STREAMS = 30
OPEN_MANY = f"""
import os
from pathlib import Path
from jupyter_gpu_kernel.hub.transport.process import ProcessEnds
streams = [ProcessEnds(["cat"], os.environ, Path("/")) for _ in range({STREAMS})]
for stream in streams:
    stream.write(memoryview(b"x"))
print(sum(stream.read(10) == b"x" for stream in streams))
for stream in streams:
    stream.close_stdin()
for stream in streams:
    assert stream.wait(60) == 0
"""


@pytest.mark.skipif(sys.platform != "linux", reason="about a limit of Linux")
def test_a_user_has_as_many_streams_as_needed() -> None:
    """Linux permits 64 MiB of pipes to each user without a capability, and three pipes of each stream took 3 MiB."""
    command = [sys.executable, "-c", OPEN_MANY]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("needs setpriv, as no limit applies to root")
        command = ["setpriv", "--inh-caps=-all", "--bounding-set=-all", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{STREAMS}\n", "")
