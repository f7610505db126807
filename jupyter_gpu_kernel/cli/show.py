"""The terminal side of the commands: tables, progress, questions. Knows the shapes of answers, and no hub.

What comes from other machines could be anything: it is shown without control characters, each cell of a table on one
line and cut where it is too long, and what has not the shape it should have as “?”.
"""

from __future__ import annotations

import contextlib
import getpass
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

_TRIES = 3  # to type the end of a fingerprint
_TRANSIENT = 76  # columns of the line that comes and goes
_CELL, _LAST = 60, 2000  # characters of a table's cell; of those in the last column
_YEAR_9999 = 253_402_300_799
_LARGEST = 10**15


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as needed."""
    rows = [[*(_cell(cell, _CELL) for cell in row[:-1]), _cell(row[-1], _LAST)] for row in rows]
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads) - 1)]
    return "\n".join(
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)), row[-1]]
        ).rstrip()
        for row in (heads, *rows)
    )


def plain(text: str) -> str:
    """Without what would move a terminal's cursor, or worse; line ends stay."""
    return "".join(one if one.isprintable() or one == "\n" else "?" for one in text)


def line(text: str) -> str:
    """`plain`, on one line."""
    return plain(" ".join(text.split()))


def _cell(text: str, most: int) -> str:
    line = plain(text).replace("\n", " ")
    return line if len(line) <= most else line[: most - 1] + "…"


def gpus(rows: Sequence[dict[str, Any]]) -> str:
    """The `gpus` verb's list, and what a probe says of GPUs."""
    heads = ("NODE", "GPU", "NAME", "MEMORY MiB", "USE", "WHO", "FREE")
    return table(heads, [_gpu(row) for row in rows])


def waiting(rows: Sequence[dict[str, Any]]) -> str:
    """Of the `ps` verb's rows those whose first cell waits for GPUs; "" if there is none."""
    held = [row for row in rows if row.get("state") == "waiting"]
    heads = ("WAITS", "NODE", "SINCE", "NOTEBOOK")
    lines = [
        (
            _text(row.get("id")),
            _node(row),
            ago(row.get("since")) or "?",
            _text(row.get("notebook") or "-"),
        )
        for row in held
    ]
    return table(heads, lines) if held else ""


def _gpu(row: dict[str, Any]) -> tuple[str, ...]:
    use = row.get("utilization")
    return (
        _node(row),
        _text(row.get("index")),
        _text(row.get("name")),
        f"{_text(row.get('memory_used_mib'))}/{_text(row.get('memory_total_mib'))}",
        "?" if use is None else f"{_text(use)} %",
        _who(row) or "-",
        "yes" if row.get("free") else f"no: {_text(row.get('reason'))}",
    )


def _who(row: dict[str, Any]) -> str:
    """The users on it, and who leased it since when."""
    users = [
        f"{_text(one.get('user'))} ({_text(one.get('memory_mib'))} MiB)"
        for one in _objects(row.get("processes"))
    ]
    for lease in _objects([row.get("lease")]):
        since = ago(lease.get("since"))
        user = "you" if lease.get("yours") is True else _text(lease.get("user"))
        users.append(f"{user}, leased" + (f" {since}" if since else ""))
    users += [f"left over from kernel {_text(one.get('kernel'))}" for one in _objects(row.get("leftovers"))]
    return ", ".join(dict.fromkeys(users))


def leftovers(rows: Sequence[dict[str, Any]]) -> str:
    """What `stop --leftovers` is about to end."""
    heads = ("NODE", "PID", "KERNEL", "GPUS", "COMMAND")
    return table(heads, [_leftover(row) for row in rows])


def _leftover(row: dict[str, Any]) -> tuple[str, ...]:
    gpus = ", ".join(map(_text, _list(row.get("gpus")))) or "-"
    known = (_text(row.get(name)) for name in ("node", "pid", "kernel"))
    return (*known, gpus, _text(row.get("command")))


def kernels(rows: Sequence[dict[str, Any]]) -> str:
    """The `ps` verb's list."""
    heads = ("ID", "NAME", "NODE", "STATE", "SINCE", "GPUS", "PID", "ATTACHED", "NOTEBOOK")
    return table(heads, [_kernel(row) for row in rows])


def _kernel(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        _text(row.get("id")),
        _text(row.get("name")),
        _node(row),
        _text(row.get("state")),
        ago(row.get("since")) or "?",
        str(len(_list(row.get("gpus")))) if row.get("pid") else "?",  # nobody has heard of its process
        _text(row.get("pid") or None),
        _attached(row),
        _last_column(row),
    )


def _attached(row: dict[str, Any]) -> str:
    """Whether a front end has it: one of this computer, or one of another."""
    if row.get("attached"):
        return "yes"
    return f"from {_text(row['attached_from'])}" if row.get("attached_from") else "no"


def _last_column(row: dict[str, Any]) -> str:
    """The notebook; of a kernel that ended the reason, too."""
    notebook = _text(row.get("notebook") or "-")
    return f"{notebook}  (ended: {_text(row['cause'])})" if row.get("cause") else notebook


def _node(row: dict[str, Any]) -> str:
    """The node by its own name; and by the user's, which it cannot choose, where the two differ."""
    says, ours = _text(row.get("node")), _text(row.get("hop"))
    name = ours.rpartition("@")[2]
    same = says == ours or says.partition(".")[0] == name.partition(":")[0].partition(".")[0]
    return says if same or not row.get("hop") else f"{name} ({says})"


def check(rows: Sequence[dict[str, Any]]) -> str:
    """The `check` verb's list."""
    return table(
        ("", "HOP", "STEP", "TIME", ""),
        [
            (
                ("ok" if row.get("checked", True) else "-") if row["ok"] else "FAILED",
                row["hop"],
                row["step"],
                f"{row['seconds']:.2f} s",
                str(row.get("message") or "").partition("\n")[0],
            )
            for row in rows
        ],
    )


def story(rows: Sequence[dict[str, Any]]) -> str:
    """The `logs` verb's list; with the nodes, where several say that they have the kernel."""
    several = len({str(row.get("hop")) for row in rows}) > 1
    lines = [(_moment(row.get("time")), _text(row.get("event")), _text(row.get("text"))) for row in rows]
    if not several:
        return table(("TIME", "EVENT", ""), lines)
    nodes = [_text(row.get("hop")) for row in rows]
    return table(
        ("NODE", "TIME", "EVENT", ""), [(node, *line) for node, line in zip(nodes, lines, strict=True)]
    )


def ago(moment: Any) -> str:
    """A time (seconds since the epoch) in words, or ""."""
    if not _is_moment(moment):
        return ""
    seconds = max(0, int(time.time() - moment))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def _moment(moment: Any) -> str:
    if not _is_moment(moment):
        return "?"
    return datetime.fromtimestamp(moment).strftime("%Y-%m-%d %H:%M:%S")


def _is_moment(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _YEAR_9999


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value[:_LAST] or "?"
    if isinstance(value, int | float) and abs(value) < _LARGEST:  # neither NaN nor hundreds of digits
        return str(value)
    return "?"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in _list(value) if isinstance(one, dict)]


# --- progress and questions


class Progress:
    """What goes on, on stderr: one line that comes and goes; without a terminal, `lines` or nothing."""

    def __init__(self, lines: bool) -> None:
        self.lines = lines

    def __call__(self, event: dict[str, Any]) -> None:
        hop = event.get("hop")
        text = line(f"{hop}: {event.get('step', '')}" if hop else str(event.get("step", "")))
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{text[:_TRANSIENT]:{_TRANSIENT}}")
            sys.stderr.flush()
        elif self.lines:
            sys.stderr.write(f"  {text}\n")
            sys.stderr.flush()

    def clear(self) -> None:
        """Wipe the line."""
        if sys.stderr.isatty():
            sys.stderr.write("\r" + " " * _TRANSIENT + "\r")
            sys.stderr.flush()


class TerminalAsker:
    """Asks the owner, here. Giving up (Ctrl-D) raises SystemExit, which ends the client's thread."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def secret(self, hop: str, prompt: str) -> str:
        """A password, passphrase or code, not shown."""
        self._progress.clear()
        try:
            return getpass.getpass(line(f"{hop}: {prompt}") + " ")
        except EOFError:
            raise SystemExit(1) from None

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        """Whether the owner typed the end of the fingerprint (4 characters or more), or all of it."""
        self._progress.clear()
        sys.stderr.write(
            f"{line(hop)} is not known here yet. Its {line(key_type)} key has the fingerprint\n\n"
            f"  {line(fingerprint)}\n\n"
            "Compare it with what the machine's administrators or its own console say. If it is right, type its last\n"
            "4 characters or more; if not, “no”: "
        )
        for left in reversed(range(_TRIES)):
            typed = self._typed()
            if agrees(typed, fingerprint):
                return True
            if not left or typed.lower() in ("", "n", "no"):
                break
            sys.stderr.write(_hint(typed))
        return False

    def _typed(self) -> str:
        sys.stderr.flush()
        try:
            return input().strip()
        except EOFError:
            raise SystemExit(1) from None


def _hint(typed: str) -> str:
    if typed.lower() in ("y", "yes"):
        return "“yes” does not show that you compared it. Type the last 4 characters of the fingerprint, or “no”: "
    return "That is not how the fingerprint ends. Type its last 4 characters, as they are, or “no”: "


def agrees(typed: str, fingerprint: str) -> bool:
    """Whether what was typed proves that the fingerprint was looked at."""
    return len(typed) >= 4 and fingerprint.endswith(typed)


@contextlib.contextmanager
def terminal_kept() -> Iterator[None]:
    """Ctrl-C in the middle of a password must not leave a terminal that does not echo."""
    if sys.platform == "win32":
        yield
        return
    import termios

    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (termios.error, OSError, ValueError):  # no terminal: nothing to keep
        yield
        return
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
