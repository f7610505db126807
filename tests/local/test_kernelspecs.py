"""Kernelspecs on disk: two of one name or one, in folders made for the test, as jupyter_client finds them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from environments import Environment
from jupyter_client.kernelspec import KernelSpecManager

from jupyter_gpu_kernel import kernelspecs
from jupyter_gpu_kernel.errors import SettingsError
from jupyter_gpu_kernel.settings import parse, read_env_file
from jupyter_gpu_kernel.wire.kernel_settings import KernelSettings

ROUTE = {"route": ["alice@login:7092", "alice@gpu2"]}
KEY = "jupyter_gpu_kernel"
IMPORTS = "from jupyter_gpu_kernel import kernelspecs as k; from jupyter_gpu_kernel.settings import parse"


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_environment: None) -> Path:
    """The user's Jupyter folder."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("JUPYTER_PATH", raising=False)
    return tmp_path / "data"


def spec_file(folder: Path, name: str, content: dict[str, Any]) -> Path:
    path = folder / "kernels" / name / "kernel.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content))
    return path


def write(name: str, data: dict[str, Any], **more: Any) -> kernelspecs.Kernelspec:
    return kernelspecs.write(name, parse(data), **more)


def test_what_is_written_is_argv_alone_for_the_owner_alone(data: Path) -> None:
    settings = {**ROUTE, "python": "/opt/py", "env": {"A": "1"}, "setup": ["module load cuda"], "gpus": 0}
    spec = write("GPU2", settings)
    assert spec.path == data / "kernels" / "gpu2" / "kernel.json"
    names = {"kernel.json", "logo-svg.svg", "logo-64x64.png", "logo-32x32.png"}
    assert {path.relative_to(spec.path.parent).as_posix() for path in data.rglob("*.*")} == names
    content = json.loads(spec.path.read_text())
    program, *rest = content["argv"]
    assert Path(program).is_absolute() and Path(program).is_file()
    assert rest == ["launch", str(spec.path), "-f", "{connection_file}"]
    assert content["display_name"] == "Remote GPU (gpu2)"
    assert (content["language"], content["interrupt_mode"]) == ("python", "message")
    assert content["metadata"] == {"supported_encryption": "curve", KEY: settings}
    if sys.platform != "win32":
        assert spec.path.stat().st_mode & 0o777 == 0o600
    assert kernelspecs.find("gpu2") == kernelspecs.read(spec.path) == spec
    assert KernelSpecManager().get_kernel_spec("gpu2").interrupt_mode == "message"


def test_a_kernelspec_without_logos_gets_them_when_it_is_written_again(data: Path) -> None:
    spec = write("gpu2", ROUTE)
    logos = [path for path in spec.path.parent.iterdir() if path != spec.path]
    for logo in logos:
        logo.unlink()
    write("gpu2", ROUTE, replace=True)
    assert sorted(path.read_bytes()[:8] for path in logos) == [b"<svg xml", *2 * [b"\x89PNG\r\n\x1a\n"]]


def test_a_prefix_gets_one_spec_with_the_provisioner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "env" / "share" / "jupyter"))
    spec = write("gpu2", ROUTE, prefix=tmp_path / "env")
    assert spec.path == tmp_path / "env" / "share" / "jupyter" / "kernels" / "gpu2" / "kernel.json"
    metadata = json.loads(spec.path.read_text())["metadata"]
    assert metadata[KEY] == {**ROUTE, "gpus": 1}
    assert metadata["kernel_provisioner"]["provisioner_name"] == "remote-gpu"
    assert metadata["supported_encryption"] == "curve"
    assert [one.path for one in kernelspecs.find_all()] == [spec.path]


def test_an_environment_of_ones_own_gets_a_second_spec_that_points_to_the_first(
    tmp_path: Path, environment: Environment
) -> None:
    """In a process of that environment."""
    if sys.platform == "win32":
        pytest.skip("the environment is made of symbolic links")
    home = tmp_path / "home"
    home.mkdir()
    code = (
        f"{IMPORTS}\n"
        "from jupyter_client.kernelspec import KernelSpecManager as M\n"
        "k.write('gpu2', parse({'route': ['gpu2']})); spec = M().get_kernel_spec('gpu2')\n"
        "print(k.read(spec.resource_dir + '/kernel.json').settings.to_json(), spec.resource_dir)\n"
        "print(k.find('gpu2').path, len(k.find_all()))\n"
        "print(len(k.remove('gpu2')), k.find_all())\n"
    )
    reported = in_environment(environment, code, HOME=str(home))
    first = home / ".local" / "share" / "jupyter" / "kernels" / "gpu2"
    second = environment.prefix / "share" / "jupyter" / "kernels" / "gpu2"
    if sys.platform == "darwin":
        first = home / "Library" / "Jupyter" / "kernels" / "gpu2"
    assert reported == [
        f"{{'route': ['gpu2'], 'gpus': 1}} {second}",
        f"{first / 'kernel.json'} 1",
        "2 []",
    ]
    assert not first.exists() and not second.exists()


def in_environment(environment: Environment, code: str, **variables: str) -> list[str]:
    """What this code prints there."""
    env = {"PATH": os.environ["PATH"], **environment.variables, **variables}
    done = subprocess.run(
        [environment.python, "-c", code], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("elsewhere", ["prefix", "JUPYTER_DATA_DIR"])
def test_a_replacement_elsewhere_leaves_the_environments_own(
    tmp_path: Path, environment: Environment, elsewhere: str
) -> None:
    """It belongs to the home in which it was added. That it is found first is told."""
    if sys.platform == "win32":
        pytest.skip("the environment is made of symbolic links")
    other = tmp_path / "other"
    write = IMPORTS + "; spec = k.write('gpu2', parse({'route': ['%s']}), replace=True%s)"
    in_environment(environment, write % ("first", ""), HOME=str(tmp_path / "home"))
    own = environment.prefix / "share" / "jupyter" / "kernels" / "gpu2" / "kernel.json"
    before = own.read_text()
    prefix = f", prefix={str(other)!r}" if elsewhere == "prefix" else ""
    variables = {"HOME": str(other)} if prefix else {"HOME": str(other), elsewhere: str(other / "data")}
    code = (
        write % ("second", prefix) + "; print(spec.path, k.find('gpu2').settings.route, k.shadowed_by(spec))"
    )
    (reported,) = in_environment(environment, code, **variables)
    assert reported.startswith(str(other)) and reported.endswith(f"('first',) {own}")
    assert own.read_text() == before


def test_with_a_prefix_names_are_taken_there_alone(data: Path, tmp_path: Path) -> None:
    write("gpu2", ROUTE)
    spec = write("gpu2", ROUTE, prefix=tmp_path / "env")
    with pytest.raises(SettingsError, match=r"the kernelspec gpu2 already exists: .*env(.|\n)*--replace"):
        write("gpu2", ROUTE, prefix=tmp_path / "env")
    theirs = spec_file(
        tmp_path / "env" / "share" / "jupyter", "julia", {"argv": ["julia"], "display_name": "Julia"}
    )
    with pytest.raises(SettingsError, match="another program's"):
        write("julia", ROUTE, prefix=tmp_path / "env", replace=True)
    assert "Julia" in theirs.read_text() and spec.path.exists()


def test_a_pointer_is_followed_and_a_lost_one_says_so(data: Path, tmp_path: Path) -> None:
    spec = write("gpu2", ROUTE)
    pointer = spec_file(tmp_path / "env", "gpu2", {"metadata": {KEY: {"settings": str(spec.path)}}})
    assert kernelspecs.read(pointer).settings == spec.settings
    kernelspecs.remove("gpu2")
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        kernelspecs.read(pointer)


def test_a_pointer_points_no_further(data: Path, tmp_path: Path) -> None:
    """Else two could lead in a circle."""
    circle = tmp_path / "env" / "kernels" / "gpu2" / "kernel.json"
    spec_file(tmp_path / "env", "gpu2", {"metadata": {KEY: {"settings": str(circle)}}})
    with pytest.raises(SettingsError, match=r"the setting “settings” in .* is unknown"):
        kernelspecs.read(circle)


def test_a_name_is_taken_once(data: Path) -> None:
    write("gpu2", ROUTE)
    with pytest.raises(SettingsError, match=r"the kernelspec gpu2 already exists(.|\n)*--replace"):
        write("gpu2", ROUTE)
    write("gpu2", {"route": ["other"]}, replace=True)
    assert kernelspecs.find("GPU2").settings.route == ("other",)


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
def test_links_do_not_mislead_a_replacement(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One to the very folder that was written; one to a folder elsewhere, of which only the link is ours to remove."""
    spec = write("gpu2", ROUTE)
    (tmp_path / "alias").symlink_to(data)
    elsewhere = spec_file(tmp_path, "elsewhere", {"metadata": {KEY: ROUTE}})
    link = tmp_path / "shared" / "kernels" / "gpu2"
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere.parent)
    monkeypatch.setenv("JUPYTER_PATH", os.pathsep.join(str(tmp_path / name) for name in ("alias", "shared")))
    write("gpu2", {"route": ["other"]}, replace=True)
    assert kernelspecs.read(spec.path).settings.route == ("other",)
    assert not link.exists() and elsewhere.exists()


def test_another_programs_kernelspec_is_never_touched(data: Path) -> None:
    theirs = spec_file(data, "julia", {"argv": ["julia"], "display_name": "Julia"})
    before = theirs.read_bytes()
    for action in (
        lambda: write("julia", ROUTE, replace=True),
        lambda: kernelspecs.remove("julia"),
        lambda: kernelspecs.find("julia"),
        lambda: kernelspecs.read(theirs),
    ):
        with pytest.raises(SettingsError, match="julia"):
            action()
    assert theirs.read_bytes() == before


@pytest.mark.parametrize(
    "name, why",
    [
        ("", "it is empty"),
        *(
            (name, "it contains a character")
            for name in ("a b", "ü", "a/b", "../x", "a\\b", "a\nb", "a\x1b[2J", "a:b")
        ),
        *(
            (name, "it begins with a dot or a hyphen")
            for name in (".", "..", "...", ".a", "-a", "--replace", "a.")
        ),
        *((name, "Windows reserves it") for name in ("con", "NUL", "aux.x", "Com1", "lpt9.tar.gz")),
        ("a" * 101, "it is longer than 100 characters"),
    ],
)
def test_names_that_are_no_folders(name: str, why: str, data: Path, tmp_path: Path) -> None:
    for prefix in (None, tmp_path / "env"):
        with pytest.raises(
            SettingsError, match=rf"cannot be a kernelspec's name: {why}(.|\n)*--name"
        ) as error:
            write(name, ROUTE, prefix=prefix, replace=True)
        assert str(error.value).isprintable() is False and "\x1b" not in str(error.value)
        assert len(str(error.value)) < 250
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a", "A.b_c-d", "console", "com", "com10", "nul-1", "0", "a" * 100])
def test_names_that_are(name: str) -> None:
    write(name, ROUTE)
    assert name.lower() in KernelSpecManager().find_kernel_specs()
    kernelspecs.remove(name)


def test_a_file_that_cannot_be_read_is_reported_and_not_taken_for_another_programs(data: Path) -> None:
    path = spec_file(data, "torn", {})
    for broken in ("{", '{"metadata": 3}', "[" * 100_000):
        path.write_text(broken)
        for action in (
            lambda: kernelspecs.find("torn"),
            lambda: kernelspecs.remove("torn"),
            lambda: write("torn", ROUTE, replace=True),
        ):
            with pytest.raises(SettingsError, match=r"the kernelspec torn is broken(.|\n)*Remove the folder"):
                action()


def test_kernelspecs_of_earlier_releases_are_still_read(data: Path) -> None:
    """Without “supported_encryption”."""
    path = spec_file(data, "old", {"argv": ["x"], "metadata": {KEY: ROUTE}})
    assert kernelspecs.find("old").settings == kernelspecs.read(path).settings == parse(ROUTE)


def test_no_message_shows_what_may_be_secret() -> None:
    for wrong in ({"env": {"HF_TOKEN": "hunter2", "A": 1}}, {"setup": ["export X_TOKEN=hunter2", 1]}):
        with pytest.raises(SettingsError, match="is of another type") as error:
            parse({**ROUTE, **wrong})
        assert "hunter2" not in str(error.value)


def test_the_nearest_name_is_offered() -> None:
    with pytest.raises(SettingsError, match="There is none yet"):
        kernelspecs.find("gpu2")
    write("gpu2", ROUTE)
    with pytest.raises(SettingsError, match=r"no remote GPU kernelspec gpu22\nDid you mean gpu2\?"):
        kernelspecs.remove("gpu22")


def test_a_broken_one_does_not_hide_the_others_and_can_be_removed(data: Path) -> None:
    good = write("good", ROUTE)
    spec_file(data, "bad", {"metadata": {KEY: {"rout": ["x"]}}})
    spec_file(data, "torn", {"metadata": 3})
    broken: list[SettingsError] = []
    assert kernelspecs.find_all(broken.append) == [good]
    assert [error.remedy for error in broken] == ["Did you mean “route”?"]
    assert kernelspecs.find_all() == [good]
    assert kernelspecs.remove("bad") == [data / "kernels" / "bad"]


@pytest.mark.parametrize(
    "settings, message",
    [
        ({}, "“route” is missing"),
        ({"route": []}, "“route” is empty"),
        ({"route": "gpu2"}, "“route” is 'gpu2'"),
        ({**ROUTE, "gpu": 1}, r"“gpu” is unknown\nDid you mean “gpus”\?"),
        ({**ROUTE, "gpus": "1"}, r"“gpus” is '1'\nIt must be an integer"),
        ({**ROUTE, "gpus": True}, "“gpus” is True"),
        ({**ROUTE, "gpus": -1}, "“gpus” is -1"),
        ({**ROUTE, "gpus": 65}, "“gpus” is 65"),
        ({**ROUTE, "idle_timeout": float("inf")}, "“idle_timeout” is inf"),
        ({**ROUTE, "gpu_timeout": float("nan")}, "“gpu_timeout” is nan"),
        ({**ROUTE, "cwd": "a\0b"}, "“cwd” contains a NUL character"),
        ({**ROUTE, "env": {"A": "\0"}}, "“env” contains a NUL character"),
        ({**ROUTE, "setup": ["a", "\0"]}, "“setup” contains a NUL character"),
        ({**ROUTE, "python": 5 * ["x" * 100]}, "“python” is .{60}…"),
        ({**ROUTE, "env": {"A": 1}}, "“env” is"),
        ({**ROUTE, "env": {"A-B": "1"}}, "'A-B' in “env”"),
        (
            {**ROUTE, "ignore_lease": ["0"]},
            "“ignore_lease” contains '0', which is no UUID of a GPU\nCopy the UUID that",
        ),
        ({**ROUTE, "ignore_place": ["a b"]}, "“ignore_place” contains 'a b', which is no name of a user"),
        ({**ROUTE, "hosts": ["gpu1", "gpu1"]}, "“hosts” contains a host twice\nWrite each host once."),
        ({**ROUTE, "min_memory": "20"}, r"“min_memory” is '20'\nIt must be a size of memory: 20G"),
        ({**ROUTE, "code": "--output=x"}, "“code” is '--output=x': it begins with"),
        ({**ROUTE, "sigterm": "ignore"}, "“sigterm” is 'ignore'"),
        ({**ROUTE, "transport": "telnet"}, "“transport” is 'telnet'\nIt must be one of auto, paramiko, ssh"),
        (
            {**ROUTE, "via": ["ssh 'gpu2"]},
            "a command of “via” cannot be split into words: No closing quotation",
        ),
        ({**ROUTE, "via": [" "]}, "“via” contains what is not a command"),
        ({**ROUTE, "via": ["ssh gpu2\nreboot"]}, "“via” contains what is not a command"),
        (
            {**ROUTE, "via": ["apptainer exec ~/a.sif"]},
            "“via” contains '~/a.sif', which would not be replaced",
        ),
        ({**ROUTE, "via": ["apptainer exec $SCRATCH/a.sif"]}, "which would not be replaced"),
        (
            {**ROUTE, "via": ["env HF_TOKEN=hf_abcdefghij ssh gpu2"]},
            "a command of “via” contains what looks like",
        ),
        ({**ROUTE, "env": {"HF_TOKEN": "abc"}}, r"HF_TOKEN looks like a secret(.|\n)*--env-file"),
        (
            {**ROUTE, "setup": ["module load cuda", "export WANDB_API_KEY='abc'"]},
            r"line 2 of “setup” contains what looks like a secret in WANDB_API_KEY(.|\n)*--env-file",
        ),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], message: str, data: Path) -> None:
    with pytest.raises(SettingsError, match=message):
        write("gpu2", settings)
    assert not data.exists()


def test_an_env_file_is_read_at_the_start_only(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("# mine\n\nexport HF_TOKEN='a b'\nLEVEL=1\n")
    file.chmod(0o600)
    spec = write("gpu2", {**ROUTE, "env_file": str(file), "env": {"LEVEL": "2"}})
    assert kernelspecs.read(spec.path).settings.env == {"HF_TOKEN": "a b", "LEVEL": "2"}
    assert "HF_TOKEN" not in spec.path.read_text() and "HF_TOKEN" not in repr(kernelspecs.find("gpu2"))


def test_env_files_that_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "env"
    with pytest.raises(SettingsError, match="cannot be read"):
        read_env_file(str(file))
    file.write_text("A=1\nno assignment\n")
    file.chmod(0o600)
    with pytest.raises(SettingsError, match="line 2 of the env file"):
        read_env_file(str(file))
    if sys.platform != "win32":
        for mode in (0o640, 0o620, 0o604, 0o602):
            file.chmod(mode)
            with pytest.raises(SettingsError, match="chmod 600"):
                read_env_file(str(file))


def test_settings_come_back_as_they_were() -> None:
    settings = KernelSettings(
        ("a", "b"), ("/key",), "/config", "py", 2, {"A": "1"}, "/env", "~/x", ("line",), "default"
    )
    assert parse(json.loads(json.dumps(settings.to_json()))) == settings
