"""The verb `remove`: removes a kernelspec."""

from __future__ import annotations

import argparse

from .. import adding
from ..wire.texts import printable
from .verb import Verb


class Remove(Verb):
    verb = "remove"
    summary = "Remove a kernelspec. Running kernels keep running."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("spec", metavar="NAME")

    def run(self) -> int:
        folders, notes = adding.remove(self.args.spec)
        lines = [*(f"Removed: {one}" for one in folders), *notes]
        self.print_result({"removed": folders}, printable("\n".join(lines)))
        return 0
