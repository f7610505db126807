"""The git revision of `--code REV` and `%gpu code REV`: which texts are accepted as one."""

from __future__ import annotations

MAX_REVISION = 200
"""Characters of a revision."""


def fault(revision: str) -> str:
    """Return why git must not be asked for this revision; "" if it may be."""
    if not revision.strip():
        return "it is empty"
    if len(revision) > MAX_REVISION:
        return f"it has more than {MAX_REVISION} characters"
    if revision.startswith("-"):
        return "it begins with “-”, as options do"
    if not revision.isprintable():
        return "it has control characters"
    return ""
