"""Durations in seconds, from what users write, and from and to the time limits of Slurm. Pure."""

from __future__ import annotations

import re
from typing import Optional

_WRITTEN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(s|m|min|h|d)?")
_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_LIMIT = re.compile(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,2}))?(?::(\d{1,2}))?")
UNLIMITED = ("UNLIMITED", "INFINITE")


def seconds_of(text: str) -> Optional[float]:
    """Return the seconds that a user has written: "90", "90s", "1.5m", "8h", "7d"; or as a time limit of Slurm with a
    colon, "4:00:00". None for any other text."""
    match = _WRITTEN.fullmatch(text.strip().lower())
    if match is not None:
        return float(match[1]) * _UNITS[match[2] or ""]
    return limit_seconds(text) if ":" in text else None


def limit_seconds(text: str) -> Optional[int]:
    """Return the seconds of a time limit of Slurm: "30" (minutes), "30:00", "4:00:00", "1-12", "1-12:00:00".

    None if it is no time limit, or none is set ("UNLIMITED").
    """
    match = _LIMIT.fullmatch(text.strip())
    if match is None:
        return None
    days, first, second, third = (None if one is None else int(one) for one in match.groups())
    if days is not None:  # days-hours[:minutes[:seconds]]
        return days * 86400 + (first or 0) * 3600 + (second or 0) * 60 + (third or 0)
    if third is not None:
        return (first or 0) * 3600 + (second or 0) * 60 + third
    return (first or 0) * 60 + (second or 0)


def is_limit(text: str) -> bool:
    """Whether `sbatch --time` takes this text, and the limit is longer than 0."""
    return text.upper() in UNLIMITED or bool(limit_seconds(text))


def limit(seconds: int) -> str:
    """Return a duration as Slurm shows time limits: "4:00:00", "1-12:00:00"."""
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    return (f"{days}-{hours:02}" if days else str(hours)) + f":{rest // 60:02}:{rest % 60:02}"
