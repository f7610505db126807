"""Time limits and times, as Slurm writes them; and the defaults of settings that are times. Pure."""

from __future__ import annotations

import re

_LIMIT = re.compile(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,2}))?(?::(\d{1,2}))?")
_EPOCH = re.compile(r"\d{9,11}")
KEEP_JOB = 600.0
WARN_BEFORE = 300.0
UNLIMITED = ("UNLIMITED", "INFINITE")


def seconds(text: str) -> int | None:
    """Return the seconds of a time limit: "30" (minutes), "30:00", "4:00:00", "1-12", "1-12:00:00".

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
    """Whether `sbatch --time` takes this, and it is more than no time at all."""
    return text.upper() in UNLIMITED or bool(seconds(text))


def limit(number: int) -> str:
    """Return so many seconds as Slurm shows them: "4:00:00", "1-12:00:00"."""
    days, rest = divmod(number, 86400)
    hours, rest = divmod(rest, 3600)
    return (f"{days}-{hours:02}" if days else str(hours)) + f":{rest // 60:02}:{rest % 60:02}"


def moment(text: str) -> float | None:
    """Return the time in seconds since the epoch (SLURM_TIME_FORMAT=%s); None for N/A, Unknown and other forms."""
    return float(text) if _EPOCH.fullmatch(text) else None
