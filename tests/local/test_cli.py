"""The program `jupyter gpu-kernel` as users and scripts meet it: words in; text, JSON, an exit status out."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from environments import Environment

import jupyter_gpu_kernel
from jupyter_gpu_kernel.cli import terminal
from jupyter_gpu_kernel.cli.add import create_env
from jupyter_gpu_kernel.cli.arguments import span
from jupyter_gpu_kernel.cli.show import tables
from jupyter_gpu_kernel.cli.verb import _named, whole_id
from jupyter_gpu_kernel.errors import ConnectError, SettingsError
from jupyter_gpu_kernel.hub.ssh import matches_fingerprint
from jupyter_gpu_kernel.launcher import _read_connection
from jupyter_gpu_kernel.program import command, installed_program
from jupyter_gpu_kernel.provisioner import NotStarted
from jupyter_gpu_kernel.saved_answers import SavedAnswers


class Program:
    """The program, in a home and an environment of its own."""

    def __init__(self, home: Path, environment: Environment) -> None:
        self.home = home
        self.python = environment.python
        self.data = home / "data"
        drop = ("JUPYTER_", "SSH_", "XDG_")
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(drop)}
        self.env.update(
            HOME=str(home),
            USERPROFILE=str(home),
            JUPYTER_DATA_DIR=str(self.data),
            JUPYTER_CONFIG_DIR=str(home / "config"),
            JUPYTER_RUNTIME_DIR=str(home / "runtime"),
            COLUMNS="200",
            **environment.variables,
        )

    def __call__(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self.python, "-m", "jupyter_gpu_kernel.cli", *words],
            env={**self.env, **env},
            cwd=self.home,
            capture_output=True,
            text=True,
            encoding="utf-8",
            stdin=subprocess.DEVNULL,
            timeout=60,
        )
        assert "Traceback" not in done.stderr
        return done

    def ok(self, *words: str) -> str:
        done = self(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refuses(self, *words: str) -> str:
        done = self(*words)
        assert done.returncode == 1 and done.stdout == ""
        return done.stderr

    def added(self, *words: str) -> dict[str, Any]:
        """The settings that `add --no-probe` writes for these words."""
        answer = json.loads(self.ok("add", *words, "--no-probe", "--json"))
        assert answer["probe"] is None
        assert (
            json.loads(Path(answer["path"]).read_text())["metadata"]["jupyter_gpu_kernel"]
            == answer["settings"]
        )
        return dict(answer["settings"], name=answer["name"])


@pytest.fixture
def program(tmp_path: Path, environment: Environment) -> Program:
    return Program(tmp_path, environment)


VERBS = ["add", "list", "remove", "check", "login", "gpus", "ps", "attach", "stop", "priority", "logs"]
VERBS += ["serve", "vscode", "launch", "demo"]


def test_help_names_every_verb_and_each_verb_helps(program: Program) -> None:
    text = program.ok("--help")
    assert [line.split()[0] for line in text.splitlines() if re.match(r"  [a-z]+ +[A-Z]", line)] == VERBS
    for word in (
        "-J",
        "-i",
        "-F",
        "-p",
        "--name",
        "--python",
        "--gpus",
        "--env-file",
        "--no-probe",
        "--replace",
    ):
        assert word in program.ok("add", "--help")
    assert "usage: jupyter gpu-kernel stop" in program.ok("help", "stop")


def test_the_options_of_add_are_in_groups_with_five_examples(program: Program) -> None:
    text = program.ok("add", "--help")
    groups = re.findall(r"^(\w+):$", text, re.MULTILINE)
    assert groups == ["options", "Connection", "Kernel", "GPUs", "Environment", "Slurm", "Rare", "Examples"]
    assert len(text.splitlines()[0]) < 100, "the usage does not list all options"
    examples = re.findall(r"^  jupyter gpu-kernel add (.*?)(?:   .*)?$", text, re.MULTILINE)
    assert len(examples) == 5
    for words in map(str.split, examples):
        if "-i" in words:
            (program.home / words[words.index("-i") + 1]).write_text("")
        if "--create-env" not in words:  # that has to connect
            program.added(*words, "--replace")


def test_who_reads_only_the_beginning_sees_no_traceback(program: Program) -> None:
    command = [program.python, "-m", "jupyter_gpu_kernel.cli", "--help"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=program.env, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_version(program: Program) -> None:
    assert program.ok("--version").strip() == jupyter_gpu_kernel.__version__


def test_jupyter_finds_it_as_its_own_verb(program: Program) -> None:
    jupyter = Path(sys.executable).with_name("jupyter")
    if not jupyter.exists():
        pytest.skip("jupyter is not installed beside this Python")
    env = {**program.env, "PATH": os.pathsep.join([str(jupyter.parent), program.env["PATH"]])}
    words = [jupyter, "gpu-kernel", "--version"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == jupyter_gpu_kernel.__version__


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "usage: jupyter gpu-kernel VERB"),
        (["lst"], "Did you mean list"),
        (["add"], "DESTINATION"),
        (["--bogus"], "There is no option --bogus."),
        (["--bogus=1"], "There is no option --bogus=1."),
        (["add", "gpu2", "--nope"], "--nope"),
        (["add", "gpu2", "--gpu=2"], "Did you mean --gpus?"),
        (["add", "gpu2", "--create_env"], "Did you mean --create-env?"),
        (["add", "gpu2", "--helo"], "Did you mean --help?"),
        (["add", "gpu2", "--idle-timeout", "soon"], "'soon' is not a time such as"),
        (["add", "gpu2", "--slurm", "--time", "4x"], "'4x' is not a time limit such as 30m, 8h, 4:00:00"),
        (["gpus", "--history", "0"], "'0' is not a time from 1 to 2,592,000 seconds"),
        (["add", "gpu2", "--gpus", "many"], "--gpus"),
        (["priority", "k1", "100"], "'100' is not a number from -99 to 99"),
        (["priority", "k1", "high"], "'high' is not a number"),
        (["priority", "k1"], "N"),
        (["add", "gpu2", "--env", "NAME"], "'NAME' is not NAME=VALUE"),
        (["launch", "x"], "-f"),
        (["launch", "--debug", "-f", "x"], "KERNEL_JSON"),
        (["stop"], "--all"),
        (["stop", "--all", "abc"], "--all"),
        (["stop", ""], "'' is not a kernel's ID: “jupyter gpu-kernel ps” shows them"),
        (["logs", "../x"], "'../x' is not a kernel's ID"),
        (["attach", "a\nb"], "'a\\nb' is not a kernel's ID"),
    ],
)
def test_bad_usage_is_2(program: Program, words: list[str], message: str) -> None:
    done = program(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr and (not words or len(done.stderr.splitlines()) <= 2)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("90", 90), ("90s", 90), ("1.5m", 90), ("30min", 1800), ("8h", 28800), ("7D", 604800)),
        *(("4:00:00", 14400), ("1-12:00:00", 129600), ("30:00", 1800), ("0", 0)),
    ],
)
def test_times_are_written_in_one_way(text: str, seconds: int) -> None:
    assert span(text) == seconds


def test_options_that_are_times(program: Program) -> None:
    slurm = ("login", "--slurm", "--time", "30m", "--warn-before", "2m", "--keep-job", "1:00:00")
    got = program.added(*slurm, "--idle-timeout", "8h")
    keys = ("time", "warn_before", "keep_job", "idle_timeout")
    assert [got[key] for key in keys] == ["0:30:00", 120, 3600, 28800]


def test_an_error_names_the_option(program: Program) -> None:
    late = ("login", "--slurm", "--no-probe", "--time", "1h", "--warn-before", "2h")
    assert program.refuses("add", *late).startswith("--warn-before ")
    for option, value in (("--min-memory", "foo"), ("--gpus", "100"), ("--ignore-lease", "x")):
        assert program.refuses("add", "gpu2", "--no-probe", option, value).startswith(f"{option} ")
    assert program.refuses("add", "gpu2", "--no-probe", "--mem", "1G").startswith(
        "--mem is set, but --slurm is not"
    )


def test_a_device_is_an_empty_ssh_configuration(program: Program) -> None:
    assert program.added("alice@gpu2", "-F", os.devnull)["config"] == os.path.abspath(os.devnull)


def test_ssh_words_become_a_kernelspec(program: Program) -> None:
    key = program.home / "key"
    key.write_text("")
    settings = program.added("alice@gpu2", "-J", "alice@login:7092,inner", "-i", "key", "-p", "2222")
    assert settings == {
        "name": "gpu2",
        "route": ["alice@login:7092", "inner", "alice@gpu2:2222"],
        "identity": [str(key)],
        "gpus": 1,
    }


def test_a_pasted_ssh_command_is_a_hop(program: Program) -> None:
    (program.home / "id").write_text("")
    settings = program.added("gpu2", "-J", "ssh -i id alice@login -p 7092")
    assert settings["route"] == [f"ssh -i {program.home / 'id'} alice@login:7092", "gpu2"]


def test_all_other_words(program: Program) -> None:
    (program.home / "env").write_text("HF_TOKEN=abc\n")
    (program.home / "env").chmod(0o600)
    (program.home / "config").write_text("Host box\n  HostName 10.0.0.9\n")
    settings = program.added(
        *("box", "-F", "config", "--name", "My.Box", "--python", "/opt/py/bin/python", "--gpus", "0"),
        *("--env", "A=1", "--env", "B=x=y", "--env-file", "env", "--cwd", "work"),
        *("--setup", "module load cuda", "--setup", "ulimit -c 0", "--sigterm", "default"),
        *("--priority", "-5"),
    )
    assert settings == {
        "name": "my.box",
        "route": ["box"],
        "config": str(program.home / "config"),
        "python": "/opt/py/bin/python",
        "gpus": 0,
        "priority": -5,
        "env": {"A": "1", "B": "x=y"},
        "env_file": str(program.home / "env"),
        "cwd": "work",
        "setup": ["module load cuda", "ulimit -c 0"],
        "sigterm": "default",
    }


def test_the_name_and_the_route_of_each_road(program: Program) -> None:
    assert program.added("alice@login", "--via", "ssh gpu2")["name"] == "gpu2"
    box = ["--via", "apptainer exec instance://box"]
    assert program.added("login", "--via", "ssh gpu2", *box) == {
        "name": "box",
        "route": ["login"],
        "via": ["ssh gpu2", "apptainer exec instance://box"],
        "gpus": 1,
    }
    assert program.added("localhost", "--via", "srun --jobid=17 --unbuffered")["name"] == "srun"
    assert program.added("--hosts", "a,b", "--via", "docker exec -i c")["name"] == "a-b"
    lines = {words[0]: " ".join(words[1:]) for words in map(str.split, program.ok("list").splitlines())}
    assert lines["gpu2"].startswith("1 the best one found alice@login → ssh gpu2 ")
    assert lines["box"].startswith("1 the best one found login → ssh gpu2 → apptainer exec instance://box ")
    assert lines["a-b"].startswith("1 the best one found a, b → docker exec -i c ")


def test_add_tells_what_is_next(program: Program) -> None:
    text = program.ok("add", "gpu2", "--no-probe")
    assert f"Written: {program.data / 'kernels' / 'gpu2' / 'kernel.json'}" in text
    assert "Select “Remote GPU (gpu2)” in JupyterLab" in text and "Select Kernel → Jupyter Kernel…" in text


def test_what_add_refuses(program: Program) -> None:
    program.added("gpu2")
    assert "the kernelspec gpu2 already exists" in program.refuses("add", "gpu2", "--no-probe")
    program.added("gpu2", "--replace")
    assert "HF_TOKEN looks like a secret" in program.refuses(
        "add", "gpu3", "--no-probe", "--env", "HF_TOKEN=abc"
    )
    assert "--gpus is -1" in program.refuses("add", "gpu3", "--no-probe", "--gpus", "-1")
    assert "--priority is 100" in program.refuses("add", "gpu3", "--no-probe", "--priority", "100")
    assert "cannot be a kernelspec's name" in program.refuses("add", "gpu3", "--no-probe", "--name", "a b")
    assert "not an absolute path" in program.refuses("add", "gpu3", "--no-probe", "--python", "~/bin/python")
    assert "env file" in program.refuses("add", "gpu3", "--no-probe", "--env-file", "missing")
    assert "there is no file" in program.refuses("add", "gpu3", "--no-probe", "-F", ".")
    assert "Give DESTINATION, or --hosts" in program("add", "--hosts", ",", "--no-probe").stderr
    assert "0 is not a valid port" in program.refuses("add", "gpu3", "--no-probe", "-p", "0")
    assert "0 is not a valid port" in program.refuses("add", "ssh -p 0 gpu3", "--no-probe")
    assert "is not a valid address" in program.refuses("add", "a:b:c@", "--no-probe")


def test_the_beginning_of_an_id_is_enough() -> None:
    rows = [{"id": "3f2a00000001"}, {"id": "3f2b00000002"}, {"id": "nope"}, {"node": "gpu1", "error": {}}]
    assert whole_id("3f2a", rows) == "3f2a00000001"
    assert [whole_id(text, rows) for text in ("nope", "4711", "47")] == ["nope", "4711", "47"]
    with pytest.raises(SettingsError, match=r"3f2 is too short .*\nWrite at least 4 characters of the ID"):
        whole_id("3f2", rows[:1])
    with pytest.raises(SettingsError, match="begin with 3f2a: 3f2a00000001, 3f2a00000009"):
        whole_id("3f2a", [*rows, {"id": "3f2a00000009"}])


def test_the_repr_of_an_error_has_its_text() -> None:
    error = ConnectError("no route", hop="gpu2", remedy="Try again.")
    assert repr(error) == "ConnectError('gpu2: no route\\nTry again.')"
    assert repr(NotStarted(error)) == "NotStarted('gpu2: no route\\nTry again.')"


def test_nodes_are_named_as_kernelspecs_are(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    program.added("--hosts", "node7,node8", "-J", "login", "--name", "lab")
    program.added("alice@node9:7092", "--name", "b")
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(program.data))
    (spec,) = _named("node8")
    assert (spec["name"], spec["settings"]["route"]) == ("lab", ["login", "node8"]) and "hosts" not in spec[
        "settings"
    ]
    assert [one["name"] for one in (*_named("NODE9"), *_named("lab"))] == ["b", "lab"]
    assert _named("lab")[0]["settings"]["hosts"] == ["node7", "node8"]


def test_gpus_names_the_nodes_that_it_knows(program: Program) -> None:
    program.added("--hosts", "node7,node8", "--name", "lab")
    program.added("gpu2")
    known = "Known kernelspecs: gpu2, lab. Known nodes: node7, node8.\n"
    assert program.refuses("gpus", "zz") == f"there is no remote GPU kernelspec zz\n{known}"
    assert program.refuses("check", "zz").endswith("Known kernelspecs: gpu2, lab.\n")


def test_list_and_remove(program: Program) -> None:
    assert json.loads(program.ok("list", "--json")) == []
    program.added("alice@gpu2", "-J", "login")
    path = program.data / "kernels" / "gpu2" / "kernel.json"
    assert json.loads(program.ok("list", "--json")) == [
        {
            "name": "gpu2",
            "display_name": "Remote GPU (gpu2)",
            "path": str(path),
            "settings": {"route": ["login", "alice@gpu2"], "gpus": 1},
        }
    ]
    program.added(
        "gpu3",
        "--name",
        "b",
        "--gpus",
        "2",
        "--gpu-type",
        "3090",
        "--python",
        "/opt/py",
        "--transport",
        "ssh",
    )
    first, second = program.ok("list").splitlines()[1:]
    assert re.match(r"b +2 3090 +/opt/py +gpu3 \(by ssh\) +/", first)
    assert re.match(r"gpu2 +1 +the best one found +login → alice@gpu2 +/", second)
    program.ok("remove", "b")
    assert json.loads(program.ok("remove", "gpu2", "--json")) == {"removed": [str(path.parent)]}
    assert json.loads(program.ok("list", "--json")) == []


@pytest.mark.parametrize("verb", ["remove", "check", "login", "gpus"])
def test_an_unknown_name_is_1_with_the_nearest(program: Program, verb: str) -> None:
    program.added("gpu2")
    assert program.refuses(verb, "gpu-2") == "there is no remote GPU kernelspec gpu-2\nDid you mean gpu2?\n"


@pytest.mark.parametrize("verb", ["remove", "check", "login", "gpus"])
@pytest.mark.parametrize("name", ["..", "", "a\nb", "../../etc", "x" * 5000])
def test_names_that_are_none_are_unknown_like_others(program: Program, verb: str, name: str) -> None:
    printed = program.refuses(verb, name)
    assert printed.startswith(f"there is no remote GPU kernelspec {ascii(name)[:50]}") and len(printed) < 300
    assert len(printed.splitlines()) == 2


def test_in_a_release_an_error_names_its_page(program: Program) -> None:
    release = program.home / "release" / "jupyter_gpu_kernel-9.dist-info"
    release.mkdir(parents=True)
    url = "https://example.org/project/docs"
    text = f"Metadata-Version: 2.4\nName: jupyter_gpu_kernel\nVersion: 9\nProject-URL: Documentation, {url}\n"
    (release / "METADATA").write_text(text)
    path = os.pathsep.join(filter(None, [str(release.parent), program.env.get("PYTHONPATH")]))
    printed = program("check", "nope", PYTHONPATH=path).stderr
    assert printed.endswith(f"\nMore: {url}/troubleshooting.md#settingserror\n")


def test_where_there_is_no_kernelspec(program: Program) -> None:
    example = "Add one, for example: jupyter gpu-kernel add alice@gpu2 -J alice@login\n"
    for verb in ("list", "ps", "gpus"):
        done = program(verb)
        assert (done.returncode, done.stdout, done.stderr) == (
            0,
            "",
            f"There is no remote GPU kernelspec yet. {example}",
        )
        assert json.loads(program.ok(verb, "--json")) == []
    for verb in ("logs", "stop"):
        for json_too in ([], ["--json"]):
            printed = program.refuses(verb, "nope", *json_too)
            assert printed == f"there is no kernel nope, because there is no remote GPU kernelspec\n{example}"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk is /dev/full here")
def test_a_full_disk_is_no_traceback(program: Program) -> None:
    command = [program.python, "-m", "jupyter_gpu_kernel.cli", "--help"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, env=program.env, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert (
        done.stderr
        == "reading or writing failed: No space left on device\nFree disk space, or check the permissions.\n"
    )


def test_a_broken_kernelspec_is_listed_beside_the_others(program: Program) -> None:
    program.added("gpu2")
    program.added("bad")
    path = program.data / "kernels" / "bad" / "kernel.json"
    path.write_text(path.read_text().replace('"route"', '"rout"'))
    done = program("list", "--json")
    assert done.returncode == 1 and [one["name"] for one in json.loads(done.stdout)] == ["gpu2"]
    assert f"“rout” in {path} is unknown" in done.stderr


def test_launch_says_in_one_message_why_not(program: Program) -> None:
    text = program.refuses("launch", str(program.home / "kernel.json"), "-f", "connection.json")
    assert "kernel.json cannot be read" in " ".join(text.split())  # it is wrapped


def test_traitlets_words_still_go_to_traitlets(program: Program) -> None:
    done = program("list", "--json", "--Application.log_level=DEBUG")
    assert json.loads(done.stdout) == [] and "Searching" in done.stderr


def test_a_command_is_as_short_as_path_permits(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(installed_program().parent)
    monkeypatch.setenv("PATH", folder)
    assert command() == "jupyter gpu-kernel"
    monkeypatch.setenv("PATH", os.defpath)
    assert command().startswith((folder, "'", '"'))


def test_an_output_that_has_no_arrows(program: Program) -> None:
    done = program("add", "gpu2", "--no-probe", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and "Select ?Remote GPU (gpu2)?" in done.stdout


GPU = {
    "node": "gpu2",
    "index": 0,
    "uuid": "GPU-1",
    "name": "RTX 3090",
    "memory_used_mib": 12000,
    "memory_total_mib": 24576,
    "utilization": 97,
    "processes": [{"pid": 7, "user": "bob", "memory_mib": 11800}],
    "lease": None,
    "free": False,
    "reason": "in use by bob",
}


def test_the_table_of_gpus() -> None:
    unknown = {**GPU, "index": 1, "utilization": None, "memory_used_mib": None, "processes": [], "free": True}
    leased = {
        **GPU,
        "index": 2,
        "processes": [],
        "lease": {"user": "eve", "pid": 1, "id": "k", "since": None},
    }
    lines = tables.gpus([GPU, unknown, leased]).splitlines()
    assert re.split(" {2,}", lines[1]) == [
        *("gpu2", "0", "RTX 3090", "12000/24576", "97 %", "bob (11800 MiB)", "no: in use by bob")
    ]
    assert re.split(" {2,}", lines[2]) == ["gpu2", "1", "RTX 3090", "?/24576", "?", "-", "yes"]
    assert "leased by eve" in lines[3]


def test_nodes_that_cannot_be_asked_are_rows_that_say_why() -> None:
    error = ConnectError("no route to host", hop="login").to_json()
    lines = tables.gpus([{"node": node, "error": error} for node in ("gpu2", "gpu3")]).splitlines()
    ends = [re.split(" {2,}", line)[-1] for line in lines[1:]]
    assert [line.split()[0] for line in lines[1:]] == ["gpu2", "gpu3"]
    assert ends == ["not known: no route to host"] * 2


def test_who_waits_for_gpus() -> None:
    mine = {"place": 2, "user": "alice", "id": "k1", "gpus": 2, "since": None, "yours": True, "priority": 5}
    first = {
        "place": 1,
        "user": "bob",
        "id": "k0",
        "gpus": 1,
        "since": None,
        "yours": False,
        "priority": None,
    }
    row = {"node": "gpu2", "queue": [first, {**mine, "notebook": "a.ipynb"}]}
    assert tables.queue([{"node": "gpu2", "queue": []}, {"node": "gpu1"}]) == ""
    lines = tables.queue([row, {**row, "index": 1}]).splitlines()
    assert re.split(" {2,}", lines[1]) == ["1", "gpu2", "bob", "1", "?", "-", "k0", "-"]
    assert re.split(" {2,}", lines[2]) == ["2", "gpu2", "you", "2", "?", "5", "k1", "a.ipynb"]
    passed = tables.queue([{"node": "gpu2", "queue": [{**first, "passed": "it asks for 99"}]}])
    assert passed.endswith("k0      -  (passed over: it asks for 99)")
    assert len(lines) == 3, "a kernel that waits for any of several GPUs is shown once"


def test_what_other_machines_say_cannot_steer_the_terminal() -> None:
    text = tables.story([{"time": 0, "event": "end", "text": "a\x1b[2Jb"}])
    assert "\x1b" not in text and "a?[2Jb" in text


@pytest.mark.parametrize(
    "typed, agreed",
    [("wXyZ", True), ("SHA256:abcdwXyZ", True), ("XyZ", False), ("", False), ("yes", False), ("wxyz", False)],
)
def test_a_host_is_confirmed_by_its_fingerprint_only(typed: str, agreed: bool) -> None:
    assert matches_fingerprint(typed, "SHA256:abcdwXyZ") is agreed


@pytest.mark.parametrize(
    ("typed", "knows"),
    [
        ("wXyZ", True),
        ("SHA256:abcdwXyZ", True),
        ("yes\nwXyZ", True),
        ("wxyz\nyes\nwXyZ", True),
        ("yes\nyes\nyes\nwXyZ", False),
        ("no\nwXyZ", False),
        ("\nwXyZ", False),
    ],
)
def test_a_fingerprint_is_asked_for_three_times(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, knows: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed + "\n"))
    asker = terminal.TerminalAsker(terminal.Progress(False), SavedAnswers())
    assert asker.confirm_host("gpu2\nlogin", "SHA256:abcdwXyZ", "ssh-ed25519\x1b[2J") is knows
    printed = capsys.readouterr().err
    assert "The host key of gpu2 login is not known yet. Its ssh-ed25519?[2J key" in printed
    assert ("does not show that you compared it" in printed) == ("yes" in typed)


def test_progress_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.Progress(True)({"hop": "gpu2", "step": "waits\nlogin: Password:\x1b[2J"})
    assert capsys.readouterr().err == "  gpu2: waits login: Password:?[2J\n"


@pytest.mark.parametrize("port", ["x", "80", 65536, -1, 1.5, True, None])
def test_a_connection_file_without_port_numbers(tmp_path: Path, port: object) -> None:
    file = tmp_path / "kernel-1.json"
    file.write_text(json.dumps({"key": "k", "ip": "127.0.0.1", "shell_port": port, "hb_port": 0}))
    with pytest.raises(SettingsError, match="no port number under shell_port"):
        _read_connection(file)


@pytest.mark.parametrize("by_default", [True, False])
@pytest.mark.parametrize(
    ("typed", "agreed"),
    [("y\n", True), ("Yes\n", True), ("n\n", False), ("what\n", False), ("", False), ("\n", None)],
)
def test_consent(monkeypatch: pytest.MonkeyPatch, typed: str, agreed: bool | None, by_default: bool) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert terminal.agrees("Make it?", by_default=by_default) is (by_default if agreed is None else agreed)
    assert not terminal.can_ask()


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--create-env", "--env-dir", "envs"], "must be an absolute path"),
        (["--create-env", "--no-probe"], "must connect"),
        (["--env-dir", "/envs"], "belong to --create-env"),
        (["--yes"], "belong to --create-env"),
        (["--create-env", "--env-dir", "~/envs", "--yes"], ""),
    ],
)
def test_options_of_an_environment(words: list[str], fault: str) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-probe", action="store_true")
    create_env.add_arguments(parser)
    found = create_env.usage_fault(parser.parse_args(words))
    assert fault in found and bool(fault) == bool(found)
