"""What commands write to the terminal besides results: progress, and questions with their answers.

Text of other machines is shown without control characters.
"""

from __future__ import annotations

import contextlib
import getpass
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import Cancelled
from ..hub.ssh import Secret, matches_fingerprint
from ..saved_answers import SavedAnswers
from ..wire.texts import one_line, printable

_TRIES = 3  # to type the end of a fingerprint
_WIDTH = 76  # columns of the progress line


def can_ask() -> bool:
    """Whether somebody can answer."""
    return sys.stdin is not None and sys.stdin.isatty()


def agrees(question: str, *, by_default: bool) -> bool:
    """Ask, and return whether the answer is yes. An empty line is the default, the end of the input is no."""
    sys.stderr.write(f"{question} {'[Y/n]' if by_default else '[y/N]'} ")
    sys.stderr.flush()
    try:
        answer = input().strip().lower()
    except EOFError:
        return False
    return answer in ("y", "yes") or (by_default and not answer)


def ask_line(question: str, default: str = "") -> str:
    """Ask for one line, which is the default if it is empty. The end of the input is like Ctrl-C."""
    sys.stderr.write(f"{question}{f' [{default}]' if default else ''}: ")
    sys.stderr.flush()
    try:
        return input().strip() or default
    except EOFError:
        raise KeyboardInterrupt from None


def choose(question: str, values: Sequence[str], shown: Sequence[str], default: str = "") -> str:
    """Show numbered lines, and ask for one of their values, by its number, or for another one."""
    sys.stderr.writelines(f"{number:4}  {printable(text)}\n" for number, text in enumerate(shown, 1))
    answer = ask_line(question, default)
    return dict(zip(map(str, range(1, len(values) + 1)), values, strict=True)).get(answer, answer)


class Progress:
    """Progress on stderr: one line that is overwritten; without a terminal, `lines` or nothing."""

    def __init__(self, lines: bool) -> None:
        self._lines = lines

    def __call__(self, event: dict[str, Any]) -> None:
        hop = event.get("hop")
        text = one_line(f"{hop}: {event.get('step', '')}" if hop else str(event.get("step", "")))
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{text[:_WIDTH]:{_WIDTH}}")
            sys.stderr.flush()
        elif self._lines:
            sys.stderr.write(f"  {text}\n")
            sys.stderr.flush()

    def clear(self) -> None:
        """Erase the line."""
        if sys.stderr.isatty():
            sys.stderr.write("\r" + " " * _WIDTH + "\r")
            sys.stderr.flush()


class TerminalAsker:
    """Ask the user in this terminal for what the system keyring does not have. Ctrl-D cancels."""

    def __init__(self, progress: Progress, saved: SavedAnswers) -> None:
        self._progress = progress
        self._saved = saved
        self._one_at_a_time = threading.Lock()  # several hosts may ask

    def secret(self, hop: str, prompt: str, secret: Secret) -> str:
        """Ask for a password, passphrase or code, without echo. The prompt names which of them the host wants."""
        with self._one_at_a_time:
            stored = self._saved.stored(hop, secret)
            if stored is not None:
                return stored
            self._progress.clear()
            try:
                return getpass.getpass(one_line(f"{hop}: {prompt}") + " ")
            except EOFError:
                raise Cancelled(hop) from None

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        """Whether the user types the end of the fingerprint (4 characters or more), or all of it."""
        with self._one_at_a_time:
            return self._confirm_host(hop, fingerprint, key_type)

    def _confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        self._progress.clear()
        sys.stderr.write(
            f"The host key of {one_line(hop)} is not known yet. Its {one_line(key_type)} key has the fingerprint\n\n"
            f"  {one_line(fingerprint)}\n\n"
            "Compare it with the fingerprint that the machine's administrators publish, or that its console shows.\n"
            "If they are equal, type the last 4 or more characters; otherwise type “no”: "
        )
        for tries_left in reversed(range(_TRIES)):
            typed = self._read_line(hop)
            if matches_fingerprint(typed, fingerprint):
                return True
            if not tries_left or typed.lower() in ("", "n", "no"):
                break
            sys.stderr.write(_hint(typed))
        return False

    def _read_line(self, hop: str) -> str:
        sys.stderr.flush()
        try:
            return input().strip()
        except EOFError:
            raise Cancelled(hop) from None


def _hint(typed: str) -> str:
    if typed.lower() in ("y", "yes"):
        return "“yes” does not show that you compared it. Type the last 4 characters of the fingerprint, or “no”: "
    return "The fingerprint does not end with that. Type its last 4 characters exactly, or “no”: "


@contextlib.contextmanager
def terminal_settings_restored() -> Iterator[None]:
    """Restore the terminal's settings at the end: Ctrl-C at a password prompt must not leave the echo off."""
    if sys.platform == "win32":
        yield
        return
    import termios

    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (termios.error, OSError, ValueError):  # not a terminal
        yield
        return
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
