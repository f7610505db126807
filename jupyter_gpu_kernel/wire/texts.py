"""Texts: commands written so that the reader can run them, sizes, numbers, and what others chose in one line."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import textwrap
from typing import Optional, Sequence

_SIZE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?) ?([MGT])(iB|B)?", re.IGNORECASE)
_POWERS = "MGT"
_MAX_DIGITS = 18
_QUOTED = re.compile("“[^”\n]*”")
_WIDTH = 100
STOP_HINT = " Interrupt the kernel to stop waiting."
"""The end of the first line that a waiting cell shows."""
COMMAND = "jupyter gpu-kernel"
"""The name of our program in texts, where nothing else is known."""


def as_typed(words: Sequence[str], windows: bool = sys.platform == "win32") -> str:
    """Return a command as a user types it in a shell on this computer.

    On Windows that is PowerShell, which runs a quoted program only behind “&”.
    """
    if not windows:
        return shlex.join(words)
    typed = subprocess.list2cmdline(words)
    return f"& {typed}" if typed.startswith('"') else typed


def node_name(own_name: str, hop: str) -> str:
    """Return a node's own name; with the user's name for it, which the node cannot choose, if the two differ."""
    name = hop.rpartition("@")[2]
    same = own_name == hop or own_name.partition(".")[0] == name.partition(":")[0].partition(".")[0]
    return own_name if same or not hop else f"{name} ({own_name})"


def memory_size(mib: int) -> str:
    """A size in MiB as users read it: "512 MiB", "11.9 GiB"."""
    return f"{mib / 1024:.1f} GiB" if mib >= 1024 else f"{mib} MiB"


def memory_mib(size: str) -> Optional[int]:
    """The MiB of a size as users write it: "20G" and "20GB" are 20 * 1000³ bytes, "20GiB" are 20 * 1024³; None if it is
    no size. GPUs that are sold with 24 GB may report a little less than 24 GiB."""
    match = _SIZE.fullmatch(size.strip())
    if match is None:
        return None
    base = 1024 if (match[3] or "").lower() == "ib" else 1000
    size_in_bytes = float(match[1]) * base ** (_POWERS.index(match[2].upper()) + 2)
    return int(size_in_bytes / 1024**2)


def whole_number(text: str) -> Optional[int]:
    """The number that a program has printed; None for anything else, such as "[N/A]", or thousands of digits."""
    return int(text) if text.isdigit() and text.isascii() and len(text) <= _MAX_DIGITS else None


def printable(text: str) -> str:
    """Return text that others chose in a form that is safe in a terminal: a space for other white space, and “?” for
    each character that is not printable; line ends stay."""
    if text.isprintable():
        return text
    safe = (char if char.isprintable() or char == "\n" else " " if char.isspace() else "?" for char in text)
    return "".join(safe)


def shortened(text: str, most: int) -> str:
    """Return at most `most` characters of the text, with “…” in the place of the others."""
    return text if len(text) <= most else text[: most - 1] + "…"


def one_line(text: str, most: int = 200) -> str:
    """Return text that others chose in one line of at most `most` characters, with single spaces between the words."""
    return shortened(printable(" ".join(text[: 4 * most].split())), most)


def signal_name(number: int) -> str:
    """SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def duration(seconds: float) -> str:
    """A time in words: "0.123 s", "45 s", "12 min 3 s", "5 h 2 min", "1 d 1 h"; "0 s" for a negative one."""
    for size, unit, part, rest_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            whole, rest = divmod(round(seconds / part), size // part)
            return f"{whole} {unit} {rest} {rest_unit}" if rest else f"{whole} {unit}"
    return f"{max(0.0, seconds):.3g} s"


def wrapped(text: str, indent: str = "") -> str:
    """Return a text for a cell with lines of at most 100 characters, where it has spaces: VS Code cuts longer ones off.

    A command in quotation marks “…” stays in one line. `indent`: of the second and further lines that a line becomes;
    they are indented twice as far as that line is, in any case.
    """
    lines = _QUOTED.sub(lambda quoted: quoted[0].replace(" ", "\0"), text).split("\n")
    return "\n".join(_wrapped_line(line, indent) for line in lines).replace("\0", " ")


def _wrapped_line(line: str, indent: str) -> str:
    if len(line) <= _WIDTH:
        return line
    hanging = indent or 2 * line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line, _WIDTH, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )


def with_program(text: str, program: str) -> str:
    """Return the text with `program` (quoted for the reader's shell; "" if unknown) in place of COMMAND."""
    return text.replace(COMMAND + " ", program + " ") if program else text
