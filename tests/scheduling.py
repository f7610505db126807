"""Which tests run one after another in one process, and which are begun first.

With several processes, each file runs in one of them. So do all files that use something that takes long to start:
Slurm, or a browser with JupyterLab. These come first, and then the files that take longest, since the last file decides
how long the run takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

GROUPS = ("/test_slurm_", "/browser/")
"""Parts of paths."""
LONG = ("/local/test_cli.py", "/hub/test_gate.py", "/wire/test_buffers.py")
"""Files that take longest of those that `make test` runs: `pytest --durations=0` shows that of each test."""


def group_of(nodeid: str) -> str:
    """The tests that run in one process with this one."""
    file = nodeid.partition("::")[0]
    return next((group for group in GROUPS if group in file), file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the groups, and then with the long files; the order is the same otherwise."""
    items.sort(key=lambda item: _rank(group_of(item.nodeid)))


def _rank(group: str) -> int:
    return 0 if group in GROUPS else 1 if group.endswith(LONG) else 2


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist nobody calls it
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """For `--dist loadfile`."""
    from xdist.scheduler import LoadFileScheduling

    class ByGroup(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # by the number of tests
    return ByGroup(config, log)
