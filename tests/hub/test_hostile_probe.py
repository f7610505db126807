"""A node that answers the probe with anything: Pythons are found, or an error says why not, in inert words."""

from __future__ import annotations

import json
from subprocess import CompletedProcess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtimes import RUNTIME

from jupyter_gpu_kernel.errors import AgentError
from jupyter_gpu_kernel.hub.node.check.find_python import FoundPythons, find_pythons

GOOD = json.dumps(
    {"executable": "/p", "prefix": "/", "version": "3.11.1", "ipykernel": "6.29", "pyzmq": "26"}
)


class Script:
    """A runner: each command prints these lines, the first of them to the survey."""

    def __init__(self, survey: list[str], tried: list[str]) -> None:
        self.survey, self.tried = survey, tried

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 30.0) -> CompletedProcess[bytes]:
        lines = (
            self.tried
            if stdin.decode().rsplit("\n}", 1)[0].splitlines()[-1].startswith("try ")
            else self.survey
        )
        text = "".join(f"{line}\n" for line in lines)
        return CompletedProcess(command, 0, f"noise\n{text}".encode("utf-8", "surrogateescape"), b"")


def inert(found: FoundPythons | AgentError) -> None:
    texts = [found.cause, found.remedy] if isinstance(found, AgentError) else _texts(found.to_json())
    for text in texts:
        shown = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        assert all(one.isprintable() or one == "\n" for one in shown) and len(text) < 100_000


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _texts(inner)]
    return [text for inner in value for text in _texts(inner)] if isinstance(value, list) else [str(value)]


WORDS = "python fact unseen tried path login /usr/bin/python3 conda 0 late 3.11.7 6.29.5 scratch home /home/x nonsense"
FIELDS = st.sampled_from(
    [
        *WORDS.split(),
        *("{}", "[]"),
        *("", "/a b\x1b[2J", "9" * 6000, "\u202e", '{"executable": ' + "[" * 5000),
        *(GOOD, GOOD.replace("3.11.1", "\\u001b[2J"), GOOD.replace('"/p"', "[1]")),
    ]
)
LINES = st.lists(st.lists(FIELDS, max_size=8).map("\t".join), max_size=4)
ENDS = st.sampled_from(["0", "1", "126", "late"])
TRIED = st.lists(st.builds(lambda end, texts: f"tried\t/p\t{end}\t{texts}", ENDS, FIELDS))


@settings(max_examples=80, deadline=None)
@given(LINES, LINES | TRIED, st.sampled_from([None, "python3", "/p"]))
def test_whatever_the_probe_says(survey: list[str], tried: list[str], wanted: str | None) -> None:
    try:
        inert(find_pythons(Script(survey, tried), "gpu2", wanted, RUNTIME.monotonic))
    except AgentError as error:
        inert(error)


SURVEY = ["python\tpath\t/usr/bin/python3\t/usr\tother"]


LONG_VERSION = ["python\tconda\t/p\t/conda\tconda\t" + "9" * 6000]


def tried(facts: str) -> str:
    return f"tried\t/usr/bin/python3\t0\t{facts}"


@pytest.mark.parametrize(
    ("survey", "answers", "problem"),
    [
        *((SURVEY, [tried(facts)], None) for facts in ("nonsense", "5", "[]", "", "[" * 5000)),
        (SURVEY, ["tried"], None),
        (SURVEY, [tried(GOOD)] * 2, "but reported on"),
        (LONG_VERSION, [], "has no ipykernel"),
    ],
    ids=[
        "nonsense",
        "a number",
        "a list",
        "nothing",
        "deep",
        "no fields",
        "more answers than questions",
        "long version",
    ],
)
def test_an_answer_that_is_refused(survey: list[str], answers: list[str], problem: str | None) -> None:
    good = find_pythons(Script(SURVEY, [tried(GOOD)]), "gpu2", None, RUNTIME.monotonic)
    assert good.python.version == "3.11.1"
    with pytest.raises(AgentError, match=problem):
        find_pythons(Script(survey, answers), "gpu2", None, RUNTIME.monotonic)


def test_pythons_without_end() -> None:
    survey = [f"python\tpath\t/p{number}\t/usr{number}\tother" for number in range(100_000)]
    found = find_pythons(Script(survey, [f"tried\t/p\t0\t{GOOD}"] * 4), "gpu2", None, RUNTIME.monotonic)
    assert len(found.others) < 300
