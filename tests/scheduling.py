"""Which tests run one after another in one process, and which are begun first.

With several processes, each file runs in one of them. So do all files that use something that takes long to start:
Slurm, or a browser with JupyterLab. These come first, since the last file decides how long the run takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

GROUPS = ("/test_slurm_", "/browser/")
"""Parts of paths."""


def group_of(nodeid: str) -> str:
    """The tests that run in one process with this one."""
    file = nodeid.partition("::")[0]
    return next((group for group in GROUPS if group in file), file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the groups; the order is the same otherwise."""
    items.sort(key=lambda item: group_of(item.nodeid) not in GROUPS)


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
