"""The probe of a work node: the script run by a real sh, on homes made for it, with stand-ins for Pythons."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import pytest
from probed_node import Node, real_venv, why_not
from waiting import eventually

from jupyter_gpu_kernel.errors import AgentError
from jupyter_gpu_kernel.hub.node.check.python_probe import Python

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(sys.platform == "win32", reason="the script runs on the work node's sh"),
]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


SHELLS = [shell for shell in ("dash", "bash", "busybox sh") if shutil.which(shell.split()[0])]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_real_venv_in_the_home_is_found_by_every_sh(node: Node, shell: str) -> None:
    program, *words = shell.split()
    node.sh = shlex.join([str(shutil.which(program)), *words])
    python = real_venv(node.home / "work" / "project one" / ".venv", "7.1.0")
    found = node.find()
    assert found.python == Python(
        path=str(python),
        source="venv",
        prefix=str(python.parents[1]),
        kind="venv",
        version=".".join(map(str, sys.version_info[:3])),
        ipykernel="7.1.0",
        pyzmq="26.0.3",
    )
    assert found.others == () and found.skipped == ()
    assert found.node.home == str(node.home) and found.node.home_problem == "" and found.node.machine
    assert list(node.home.iterdir()) == [node.home / "work"]  # nothing is left behind
    assert list(node.tmp.iterdir()) == []


def test_nothing_is_started_whose_files_say_enough(node: Node) -> None:
    base = node.home / "miniconda3"
    without = node.conda(base, ipykernel=None)
    old = node.conda(base / "envs" / "old", version="3.7.9")
    stale = node.conda(base / "envs" / "stale", ipykernel="5.5.6")
    good = node.conda(base / "envs" / "ml")
    found = node.find()
    assert found.python.path == str(good)
    assert node.starts() == [str(good)]
    assert why_not(found, without) == "(Python 3.11.7) has no ipykernel"
    assert why_not(found, old) == "is Python 3.7.9; 3.8 or newer is needed"
    assert why_not(found, stale) == "has ipykernel 5.5.6; 6.20 or newer is needed"


def test_path_comes_before_conda_and_the_newest_ipykernel_first_in_one_place(node: Node) -> None:
    six = node.conda(node.home / "miniforge3" / "envs" / "a", ipykernel="6.9.2")
    seven = node.conda(node.home / "miniforge3" / "envs" / "b", ipykernel="7.0.1")
    tenth = node.conda(node.home / "miniforge3" / "envs" / "c", ipykernel="6.30.0")
    found = node.find()
    assert [found.python.path, found.others[0].path] == [str(seven), str(tenth)]
    assert "would do, too" in found.others[0].why_not and "6.20" in why_not(found, six)
    own = node.python(node.root / "opt", ipykernel="6.25.0", name="python3")
    (node.programs / "python3").symlink_to(own)
    assert node.find().python.path == str(own)


def test_environments_elsewhere_are_found_by_condas_own_list(node: Node) -> None:
    python = node.conda(node.root / "scratch" / "env with a space")
    (node.home / ".conda").mkdir()
    (node.home / ".conda" / "environments.txt").write_text(f"/gone\n{python.parents[1]}\n")
    assert node.find().python.path == str(python)


def test_no_more_start_once_one_is_found(node: Node) -> None:
    pythons = [node.conda(node.home / "miniconda3" / "envs" / f"env{i}") for i in range(9)]
    found = node.find()
    assert found.python.path == str(pythons[0])
    assert len(node.starts()) == 4
    assert [p.path for p in found.others if p.why_not.startswith("not started, ipykernel 6.29.5")] == [
        str(python) for python in pythons[4:]
    ]


def test_a_login_shells_path_counts_with_its_noise(node: Node) -> None:
    python = node.python(node.root / "module", name="python3")
    node.shell = node.program(
        "noisy-shell",
        f'echo /bin/false; echo; PATH={python.parent}:$PATH; echo hi >&2; eval "$2"; echo /bin/false',
    )
    found = node.find()
    assert (found.python.path, found.python.source) == (str(python), "login")


def ended(pid: Path) -> None:
    """Wait for the end of a process, whose id is in a file: it was killed, but perhaps not just now."""
    process = Path("/proc", pid.read_text().strip(), "exe")
    eventually(lambda: not process.exists(), f"the end of {process.parent}")


def test_a_login_shell_that_hangs_is_cut_off_and_named(node: Node) -> None:
    good = node.conda(node.home / "miniconda3")
    pid = node.root / "pid"
    node.shell = node.program("hanging-shell", f"echo $$ >{pid}; exec sleep 600")
    found = node.find()
    assert found.python.path == str(good)
    assert found.skipped == (f"the login shell's PATH: {node.shell} did not answer within 5 s",)
    ended(pid)


@pytest.mark.parametrize("missing", ["", "setsid"])
def test_a_python_that_does_not_start_in_time_does_not_hold_up_the_others(node: Node, missing: str) -> None:
    for tool in missing.split():
        (node.programs / tool).unlink()
    slow = node.python(node.root / "slow", before="echo $$ >slow-pid; exec sleep 600")
    good = node.python(node.root / "good")
    script = Path(__file__).parents[2] / "jupyter_gpu_kernel" / "agent" / "probe.sh"
    call = shlex.join(["try", "1", str(slow), str(good)])
    done = node.run("/bin/sh", stdin=f"{{\n{script.read_text()}\n{call}\n}}\n".encode())
    first, second = done.stdout.decode().strip().splitlines()
    assert first.split("\t")[:3] == ["tried", str(slow), "late"]
    assert second.startswith(f"tried\t{good}\t0\t{{")
    ended(node.home / "slow-pid")


def test_each_prefix_counts_once(node: Node) -> None:
    python = node.conda(node.home / "miniconda3" / "envs" / "ml")
    for name in ("python3", "python"):
        (node.programs / name).symlink_to(python)
    found = node.find()
    assert found.python.path == str(python) and found.others == ()
    assert len(node.starts()) == 1


def test_no_python_at_all(node: Node) -> None:
    with pytest.raises(AgentError) as raised:
        node.find()
    assert raised.value.hop == "gpu2"
    assert "no Python was found" in raised.value.cause
    assert "with --create-env" in raised.value.remedy and "module load python" in raised.value.remedy
    assert "-b -p ~/miniforge3" in raised.value.remedy


def test_without_ipykernel_the_command_to_run_is_given(node: Node) -> None:
    node.conda(node.home / "miniconda3", ipykernel=None)
    python = node.conda(node.home / "miniconda3" / "envs" / "my env", ipykernel=None)
    system = node.python(node.root / "usr", ipykernel=None, name="python3")
    (node.programs / "python3").symlink_to(system)
    with pytest.raises(AgentError) as raised:
        node.find()
    assert f"{system} (Python 3.11.7) has no ipykernel" in raised.value.cause
    assert "Run “jupyter gpu-kernel add” with --create-env" in raised.value.remedy
    assert raised.value.remedy.endswith(
        f"Or run “{shlex.quote(str(python))} -m pip install ipykernel” on gpu2 (or on the login node, if the home is "
        "shared)."
    )


def test_with_a_system_python_alone_a_virtual_environment_is_advised(node: Node) -> None:
    system = node.python(node.root / "usr", ipykernel=None, name="python3")
    (node.programs / "python3").symlink_to(system)
    with pytest.raises(AgentError) as raised:
        node.find()
    folder = node.home / "gpu-kernel"
    assert f"{system} -m venv {folder} && {folder}/bin/python -m pip install ipykernel" in raised.value.remedy


def test_only_old_pythons(node: Node) -> None:
    (node.programs / "python3").symlink_to(node.python(node.root / "usr", "3.6.8", None, name="python3"))
    with pytest.raises(AgentError) as raised:
        node.find()
    assert "is Python 3.6.8; 3.8 or newer is needed" in raised.value.cause
    assert "Install Python into your home" in raised.value.remedy


def test_a_python_that_cannot_run_there_is_quoted(node: Node) -> None:
    broken = node.conda(node.home / "miniconda3")
    node.program("python", "echo 'version GLIBC_2.34 not found' >&2; exit 1", broken.parent)
    with pytest.raises(AgentError, match=r"does not work as a Python: version GLIBC_2\.34 not found"):
        node.find()


@pytest.mark.parametrize("wanted", ["~/envs/ml/bin/python", "envs/ml/bin/python", "ABSOLUTE", "mypython"])
def test_the_wanted_python_is_the_only_one_looked_at(node: Node, wanted: str) -> None:
    node.conda(node.home / "miniconda3")
    python = real_venv(node.home / "envs" / "ml", "6.29.5")
    (node.programs / "mypython").write_text(f'#!/bin/sh\nexec {python} "$@"\n')
    (node.programs / "mypython").chmod(0o755)
    found = node.find(wanted.replace("ABSOLUTE", str(python)))
    assert found.python.path == str(node.programs / "mypython" if wanted == "mypython" else python)
    assert found.python.ipykernel == "6.29.5" and found.others == ()
    assert node.starts() == []


def test_a_wanted_python_that_will_not_do(node: Node) -> None:
    without = real_venv(node.home / "without", None)
    old = node.python(node.home / "old", "3.6.8", None)
    plain = node.home / "data.txt"
    plain.write_text("no program")
    for wanted, cause, remedy in [
        ("/nowhere/python", "/nowhere/python cannot be started", "another one with --python"),
        (str(plain), "data.txt cannot be run as a program", "another one with --python"),
        (str(old), "is Python 3.6.8", "another one with --python"),
        (str(without), "has no ipykernel", f"run “{without} -m pip install ipykernel”"),
        ("python3.99", "python3.99 is not on the PATH of", "Give --python its path"),
        ("a;b", "'a;b' is not the name of a program", "Give --python a path"),
    ]:
        with pytest.raises(AgentError) as raised:
            node.find(wanted)
        assert cause in raised.value.cause and remedy in raised.value.remedy


def test_a_full_home_and_nvidia_smi_are_reported(node: Node) -> None:
    node.conda(node.home / "miniconda3")
    smi = node.program("nvidia-smi", "exit 1")
    (node.programs / "dd").unlink()
    node.program("dd", "echo \"dd: error writing '/home/x': Disk quota exceeded\" >&2; exit 1")
    found = node.find()
    assert found.node.home_problem == "Disk quota exceeded"
    assert found.node.nvidia_smi == str(smi)
    assert found.to_json()["node"]["home_problem"] == "Disk quota exceeded"


def test_a_home_whose_disk_does_not_answer_hides_no_python(node: Node) -> None:
    python = node.conda(node.home / "miniconda3")
    (node.programs / "dd").unlink()
    node.program("dd", 'trap "" TERM; : >"${2#of=}"; while :; do sleep 1; done')
    before = set(node.home.rglob("*"))
    found = node.find()
    assert found.python.path == str(python) and found.node.home_problem == ""
    eventually(lambda: set(node.home.rglob("*")) == before, "only the probe's own file is removed")
    assert list(node.tmp.iterdir()) == []


def test_an_account_without_a_shell(node: Node) -> None:
    node.sh = "echo 'This account is currently not available.'; exit 1"
    with pytest.raises(AgentError, match="This account is currently not available"):
        node.find()


def test_a_python_that_only_the_set_up_lines_bring_is_preferred(node: Node) -> None:
    (node.programs / "bash").symlink_to(str(shutil.which("bash")))
    module = node.python(node.root / "modules" / "python-3.12", "3.12.1", name="python3")
    node.conda(node.home / "miniconda3")
    found = node.find(setup=["echo noise", f"PATH={module.parent}:$PATH"])
    assert (found.python.path, found.python.source) == (str(module), "setup")
    assert node.find().python.source == "conda"
    assert node.find("python3", setup=[f"PATH={module.parent}:$PATH"]).python.path == str(module)


def test_set_up_lines_that_fail_are_named_with_their_last_words(node: Node) -> None:
    (node.programs / "bash").symlink_to(str(shutil.which("bash")))
    node.conda(node.home / "miniconda3")
    found = node.find(setup=["echo no such module >&2", "exit 1"])
    assert found.python.source == "conda"
    assert found.node.setup_problem == "they ended with exit status 1: no such module"
    assert f"after the set-up lines: {found.node.setup_problem}" in " ".join(found.skipped)
    assert node.find(setup=["no-such-command", "false"]).node.setup_problem == "", (
        "the kernel starts all the same"
    )
    assert node.find(setup=["exit 3"]).node.setup_problem.startswith("they ended with exit status 3")


def test_a_virtual_environment_that_is_not_finished_is_not_found(node: Node) -> None:
    node.conda(node.home / "miniconda3")
    python = real_venv(node.home / "half", "7.1.0")
    (python.parents[1] / ".jupyter-gpu-kernel-unfinished").touch()
    assert all(one.path != str(python) for one in node.find().others)
