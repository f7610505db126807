"""The base class of the verbs: it parses arguments, calls the hub, and prints results. It knows no verb."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

from .. import kernelspecs
from ..adding import name_of
from ..errors import GpuKernelError, SettingsError
from ..kernelspecs import HOW_TO_ADD
from ..saved_answers import SavedAnswers
from ..wire.texts import printable
from .terminal import Progress, TerminalAsker, can_ask, terminal_settings_restored

_TRAIT = re.compile(r"--(([A-Z]\w*\.)\w[\w.]*|log-level|config)=.*|--debug")
"""Arguments for traitlets, not for the verb."""

_OPTION = re.compile(r"^  (?:-\w.*, )?(--[a-z-]+)", re.MULTILINE)
"""An option in the help text, which lists each at the beginning of a line."""

REACHED_WITHIN = 10.0
"""Seconds in which each node must be reached, all at the same time, by verbs that ask all nodes."""

_WHOLE_ID, _SHORTEST_ID = 12, 4
"""Characters of a kernel's ID, and of its beginning that is enough if no other kernel's ID begins so."""

NO_KERNELSPEC = f"There is no remote GPU kernelspec yet. {HOW_TO_ADD}"


Ask = Callable[..., Any]
"""Calls the hub: `ask(op, **arguments)` returns the result."""


class Listing(NamedTuple):
    """A list for the user. rows: for --json, with errors among them; text: the table of the others, "" without any;
    nothing: what to say if there is no row at all."""

    rows: list[dict[str, Any]]
    text: str
    nothing: str = ""

    @classmethod
    def of(
        cls, rows: list[dict[str, Any]], table: Callable[[Sequence[dict[str, Any]]], str], nothing: str = ""
    ) -> Listing:
        """The listing of these rows, of which `table` makes the text."""
        good = [row for row in rows if "error" not in row]
        return cls(rows, table(good) if good else "", nothing if not rows else "")

    @property
    def errors(self) -> list[GpuKernelError]:
        """The errors of nodes."""
        return errors_of(self.rows)


class _Parser(argparse.ArgumentParser):
    """Report bad usage in two lines, without the list of all options, which --help prints."""

    def error(self, message: str) -> NoReturn:
        unknown = message.partition("unrecognized arguments: ")[2].partition("=")[0].partition(" ")[0]
        near = difflib.get_close_matches(unknown, _OPTION.findall(self.format_help()), 1)
        hint = f"Did you mean {near[0]}? " if near else ""
        self.exit(2, f"{self.prog}: {message}\n{hint}“{self.prog} --help” describes the arguments.\n")


class Verb:
    """One verb."""

    verb = ""
    summary = ""
    usage = ""
    """The arguments in one line, if there are too many of them to list all."""
    notes = ""
    """What the help text has below the arguments, as it is written here."""
    has_json = True
    """Whether the verb has the option --json."""
    ignores_unknown = False
    """Whether other arguments are no error."""
    args: argparse.Namespace

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's arguments."""

    def run(self) -> int:
        """Run the verb. Return the exit status."""
        raise NotImplementedError

    def parse(self, argv: Sequence[str]) -> list[str]:
        """Parse the verb's arguments. Return those for traitlets, such as `--Class.trait=value`."""
        parser = _Parser(
            f"jupyter gpu-kernel {self.verb}",
            usage=f"%(prog)s {self.usage}" if self.usage else None,
            description=self.summary,
            epilog=self.notes,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.add_arguments(parser)
        if self.has_json:
            parser.add_argument("--json", action="store_true", help="print JSON, for programs")
        self.args, unknown = parser.parse_known_args([arg for arg in argv if not _TRAIT.fullmatch(arg)])
        if unknown and not self.ignores_unknown:
            parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        return [arg for arg in argv if _TRAIT.fullmatch(arg)]

    def print_result(self, value: Any, text: str) -> None:
        """Print the value as JSON for programs, with --json; else the text."""
        if self.args.json:
            print_json(value)
        elif text:
            print(text)

    def ask_hub(self, op: str, *, lines: bool = False, **arguments: Any) -> Any:
        """Call the hub once: see `hub`."""
        with self.hub(lines=lines) as ask:
            return ask(op, **arguments)

    @contextlib.contextmanager
    def hub(self, *, lines: bool = False) -> Iterator[Ask]:
        """Connect to the hub, and yield what calls it, with progress and questions in this terminal."""
        from ..client import HubClient

        progress = Progress(lines)
        saved = SavedAnswers()
        asker = TerminalAsker(progress, saved) if can_ask() else None

        def ask(op: str, **arguments: Any) -> Any:
            if "specs" in arguments:
                arguments["within"] = REACHED_WITHIN
            try:
                return client.call(op, progress=progress, ask=asker, **arguments)
            except GpuKernelError as error:  # also the user's own word, which the hub has not completed
                error.fill_in("NAME", str(arguments.get("name") or ""))
                raise
            finally:
                progress.clear()

        with terminal_settings_restored(), saved.settled(), HubClient() as client:
            yield ask

    def specs_for(self, kernel: str) -> list[dict[str, Any]]:
        """All kernelspecs; that kernel runs on the node of one of them. Raises SettingsError if there is none."""
        if not kernelspecs.find_all():
            raise SettingsError(
                f"there is no kernel {kernel}, because there is no remote GPU kernelspec", remedy=HOW_TO_ADD
            )
        return self.specs()

    def kernel_of(self, text: str, specs: list[dict[str, Any]], op: str = "ps") -> str:
        """The kernel whose ID the text is, or begins; all nodes are asked for that, by the operation `op`."""
        if len(text) >= _WHOLE_ID:
            return text
        return whole_id(text, self.ask_hub(op, kernel=text, specs=specs))

    def print_listing(self, listing: Listing) -> int:
        """Print a list, or that there is none. Errors of nodes go to stderr, and make the exit status 1."""
        if self.args.json:
            print_json(listing.rows)
        elif listing.text:
            print(listing.text)
        elif listing.nothing:
            sys.stderr.write(f"{listing.nothing}\n")
        return print_errors(listing.errors)

    def specs(self, names: Sequence[str] = ()) -> list[dict[str, Any]]:
        """The named kernelspecs, those that lead to the named nodes, or all, as arguments for the hub."""
        if names:
            return [spec for name in names for spec in _named(name)]
        found = kernelspecs.find_all(print_error)
        if not found and not self.args.json:
            sys.stderr.write(f"{NO_KERNELSPEC}\n")
        return [spec.for_hub for spec in found]


def whole_id(text: str, rows: Sequence[dict[str, Any]]) -> str:
    """The only ID in these rows that begins with the text; the text itself if none does.

    Raises SettingsError if several do, or if the text is too short to be the beginning of an ID."""
    found = {str(row["id"]) for row in rows if "error" not in row and str(row["id"]).startswith(text)}
    if text in found or not found:
        return text
    if len(text) < _SHORTEST_ID:
        cause = f"{text} is too short for the beginning of a kernel's ID"
        raise SettingsError(cause, remedy=f"Write at least {_SHORTEST_ID} characters of the ID.")
    if len(found) > 1:
        cause = f"the IDs of several kernels begin with {text}: {', '.join(sorted(found))}"
        raise SettingsError(cause, remedy="Write more of the ID.")
    return found.pop()


def _named(name: str) -> list[dict[str, Any]]:
    try:
        return [kernelspecs.find(name).for_hub]
    except SettingsError:
        nodes = list(_nodes())
        if found := [spec for node, spec in nodes if node == name.lower()]:
            return found
        if kernelspecs.is_known(name)[0]:  # it is broken, or another program's
            raise
        raise kernelspecs.unknown_error(name, [node for node, _ in nodes]) from None


def _nodes() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each node to which a kernelspec leads without a job: its name, and the kernelspec for it alone."""
    for spec in kernelspecs.find_all():
        for one in spec.settings.each_host():
            if not (one.slurm or one.via):
                settings = one.replace(hosts=()).to_json()
                yield name_of(one.route[-1]), {"name": spec.name, "settings": settings}


def errors_of(rows: Sequence[dict[str, Any]]) -> list[GpuKernelError]:
    """Return the errors among these rows. One of a login node that several nodes have in common is among them once."""
    errors = [GpuKernelError.from_json(row["error"]) for row in rows if "error" in row]
    return list({str(error): error for error in errors}.values())


def print_errors(errors: Iterable[GpuKernelError]) -> int:
    """Write errors to stderr. Return the exit status: 1 if there are any."""
    status = 0
    for error in errors:
        print_error(error)
        status = 1
    return status


def print_error(error: GpuKernelError) -> None:
    """Write an error to stderr, without control characters; in a release with the address of the page about it."""
    sys.stderr.write(printable(str(error)) + "\n")
    if (kind := error.to_json()["kind"]) and (documentation := _documentation()):
        sys.stderr.write(f"More: {documentation}/troubleshooting.md#{kind.lower()}\n")


def _documentation() -> str:
    """Return the address of the documentation; "" where the package was not built from a public repository."""
    from importlib import metadata  # other commands need not wait for this import

    try:
        pages = metadata.metadata("jupyter_gpu_kernel").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:  # it is imported from a folder, and was not installed
        return ""
    return next((page.partition(", ")[2] for page in pages if page.startswith("Documentation,")), "")


def print_json(value: Any) -> None:
    """Write the value to stdout as JSON."""
    print(json.dumps(value, indent=2))
