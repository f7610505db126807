"""The kernelspecs of this package on disk: list, read, write and remove them.

One remote kernel can have two kernelspecs of the same name. The one in the user's Jupyter folder holds the settings and
has only an argv, so that every program and every environment can use it. Where the user owns this environment, another
one under `sys.prefix` points to the first and has the provisioner's stanza. jupyter_client hides a kernelspec with a
stanza wherever this package is not installed.
"""

from .reader import (
    HOW_TO_ADD,
    Kernelspec,
    all_for_hub,
    find,
    find_all,
    find_broken,
    is_known,
    read,
    shadowed_by,
    unknown_error,
)
from .writer import check_name, remove, write

__all__ = [
    "HOW_TO_ADD",
    "Kernelspec",
    "all_for_hub",
    "check_name",
    "find",
    "find_all",
    "find_broken",
    "is_known",
    "read",
    "remove",
    "shadowed_by",
    "unknown_error",
    "write",
]
