"""Words and ssh config → hops, with the machine's own `ssh -G`, and without any ssh."""

from __future__ import annotations

import getpass
import shlex
from pathlib import Path

import pytest

from jupyter_gpu_kernel.errors import GpuKernelError, RouteError
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node.shared_connection import RouteSettings
from jupyter_gpu_kernel.hub.ssh.config import ssh_config
from jupyter_gpu_kernel.hub.ssh.config.route import Hop, parse_route, resolve


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty ssh config to write to."""
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "config"
    file.write_text("")
    return file


def where(hops: tuple[Hop, ...]) -> list[tuple[str, str, int]]:
    return [(hop.user, hop.host, hop.port) for hop in hops]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("alice@gpu2", ("alice", "gpu2", 22)),
        ("alice@login:7092", ("alice", "login", 7092)),
        ("ssh://alice@login:7092", ("alice", "login", 7092)),
        ("alice@[fd00::1]:7092", ("alice", "fd00::1", 7092)),
        ("alice@fd00::1", ("alice", "fd00::1", 22)),
        ("alice@corp.example@login", ("alice@corp.example", "login", 22)),
        ("ssh alice@login -p 7092", ("alice", "login", 7092)),
        ("ssh -X -lalice login -p7092", ("alice", "login", 7092)),
    ],
)
def test_a_word_means_what_it_means_to_ssh(config: Path, word: str, expected: tuple[str, str, int]) -> None:
    assert where(parse_route(word, config=str(config))) == [expected]


@pytest.mark.parametrize(
    "word",
    [
        "",
        "-oProxyCommand=touch /tmp/x",
        "ssh -oProxyCommand=x host",
        "alice@-oProxyCommand=x",
        "alice@host;ls",
        "$(ls)@host",
        "host:99999",
        "host:0",
        "host:port",
        "ssh alice@host command",
        "ssh -L 1:a:1 host",
        "ssh 'alice@host",
        "ssh://host:port",
        "ssh -p x host",
    ],
)
def test_what_is_no_address_is_refused_with_a_remedy(word: str) -> None:
    with pytest.raises(RouteError) as caught:
        parse_route(word)
    assert caught.value.remedy


def test_jumps_come_first_and_in_order(config: Path) -> None:
    hops = parse_route("alice@gpu2", ["alice@login:7092,bob@inner"], config=str(config))
    assert where(hops) == [("alice", "login", 7092), ("bob", "inner", 22), ("alice", "gpu2", 22)]
    assert [hop.label for hop in hops] == ["alice@login:7092", "bob@inner", "alice@gpu2"]


def test_a_pasted_command_is_a_hop_with_its_key(config: Path, tmp_path: Path) -> None:
    key = tmp_path / "my key"
    key.write_text("")
    command = shlex.join(["ssh", "-i", str(key), "alice@login", "-p", "7092"])
    login, work = parse_route("alice@gpu2", [command], config=str(config))
    assert login.identity_files[0] == key
    assert key not in work.identity_files
    assert login.label == "alice@login:7092"


def test_the_words_of_a_route_give_the_same_hops_again(config: Path, tmp_path: Path) -> None:
    key = tmp_path / "my key"
    key.write_text("")
    config.write_text("Host inner\n  ProxyJump alice@outer\n")
    command = shlex.join(["ssh", "-i", str(key), "alice@inner"])
    hops = parse_route("alice@gpu2", [command], config=str(config))
    assert [hop.host for hop in hops] == ["outer", "inner", "gpu2"]
    assert resolve([hop.destination for hop in hops], config=str(config)) == hops


def test_the_ssh_config_is_followed_for_every_hop(config: Path, tmp_path: Path) -> None:
    config.write_text(
        f"""Host gpu*
  ProxyJump login,inner
  HostKeyAlias nodes
  IdentityFile {tmp_path}/alice-key
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {tmp_path}/known1 {tmp_path}/known2
  ConnectTimeout 7
Host login
  HostName login.example
  Port 7092
Host *
  User alice
"""
    )
    login, inner, work = parse_route("gpu2", config=str(config))
    assert where((login, inner, work)) == [
        ("alice", "login.example", 7092),
        ("alice", "inner", 22),
        ("alice", "gpu2", 22),
    ]
    assert (work.host_key_alias, work.identities_only, work.uses_agent) == ("nodes", True, False)
    assert work.identity_files == (tmp_path / "alice-key",)
    assert work.known_hosts[:2] == (tmp_path / "known1", tmp_path / "known2")
    assert (work.connect_timeout, login.connect_timeout) == (7.0, None)
    assert (login.host_key_alias, login.identities_only) == (None, False)


def test_given_jumps_win_over_the_config(config: Path) -> None:
    config.write_text("Host gpu2\n  ProxyJump login\nHost other\n  ProxyJump outer\n")
    hops = parse_route("gpu2", ["other"], config=str(config))
    assert [hop.host for hop in hops] == ["outer", "other", "gpu2"]
    assert [hop.host for hop in parse_route("gpu2", ["none"], config=str(config))] == ["gpu2"]


def test_include_is_followed(config: Path, tmp_path: Path) -> None:
    (tmp_path / "more").write_text("Host gpu2\n  User included\n")
    config.write_text(f"Include {tmp_path}/mor*\nHost *\n  User late\n")
    assert where(parse_route("gpu2", config=str(config))) == [("included", "gpu2", 22)]
    assert where(parse_route("gpu3", config=str(config))) == [("late", "gpu3", 22)]


def test_include_is_followed_only_where_its_block_applies_and_the_block_goes_on_behind_it(
    config: Path, tmp_path: Path
) -> None:
    (tmp_path / "more").write_text("User included\nHost gpu2\n  Port 7000\n")
    config.write_text(f"Host gpu*  # nodes\n  Include {tmp_path}/more\n  User late\n  HostName %h.site\n")
    assert where(parse_route("gpu2", config=str(config))) == [("included", "gpu2.site", 7000)]
    assert where(parse_route("gpu3", config=str(config))) == [("included", "gpu3.site", 22)]
    assert where(parse_route("me@login", config=str(config))) == [("me", "login", 22)]


def test_match_by_user_and_host_is_followed(config: Path) -> None:
    config.write_text("Match user alice originalhost gpu*\n  Port 7000\nMatch !user alice\n  Port 7001\n")
    assert where(parse_route("alice@gpu2", config=str(config))) == [("alice", "gpu2", 7000)]
    assert where(parse_route("bob@gpu2", config=str(config))) == [("bob", "gpu2", 7001)]
    assert where(parse_route("alice@login", config=str(config))) == [("alice", "login", 22)]


def test_files_that_include_each_other_are_refused(config: Path) -> None:
    config.write_text(f"Include {config}\n")
    with pytest.raises(RouteError) as caught:
        parse_route("gpu2", config=str(config))
    assert str(config) in str(caught.value)


def test_known_hosts_files_with_spaces_are_found(config: Path, tmp_path: Path) -> None:
    file = tmp_path / "First Last" / "known_hosts"
    file.parent.mkdir()
    file.write_text("")
    config.write_text(f'UserKnownHostsFile "{file}" {tmp_path}/other\n')
    (hop,) = parse_route("gpu2", config=str(config))
    assert hop.known_hosts[:2] == (file, tmp_path / "other")


def test_the_files_of_the_whole_system_are_known_hosts_too(config: Path, tmp_path: Path) -> None:
    config.write_text(f"UserKnownHostsFile {tmp_path}/mine\nGlobalKnownHostsFile {tmp_path}/ours\n")
    (hop,) = parse_route("gpu2", config=str(config))
    assert hop.known_hosts == (tmp_path / "mine", tmp_path / "ours")


def test_a_key_of_the_word_wins_over_that_of_the_command(config: Path, tmp_path: Path) -> None:
    for name in ("own", "given"):
        (tmp_path / name).write_text("")
    jump = shlex.join(["ssh", "-i", str(tmp_path / "own"), "alice@login"])
    login, work = parse_route("gpu2", [jump], identity=[str(tmp_path / "given")], config=str(config))
    assert login.identity_files[0] == tmp_path / "own"
    assert work.identity_files[0] == tmp_path / "given"
    assert tmp_path / "given" not in login.identity_files


def test_jumps_in_a_circle_are_refused(config: Path) -> None:
    config.write_text("Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n")
    with pytest.raises(RouteError, match="loop"):
        parse_route("a", config=str(config))


def test_the_old_jump_idiom_is_a_jump(config: Path) -> None:
    config.write_text("Host gpu2\n  ProxyCommand ssh -q -W %h:%p -p 7092 alice@login\n")
    hops = parse_route("alice@gpu2", config=str(config))
    assert where(hops) == [("alice", "login", 7092), ("alice", "gpu2", 22)]


def test_another_proxy_command_is_kept_for_the_ssh_program(config: Path) -> None:
    command = "cloudflared access ssh --hostname %h"
    config.write_text(f"Host login\n  ProxyCommand {command}\nHost gpu2\n  ProxyJump login\n")
    assert [hop.proxy_command for hop in parse_route("gpu2", config=str(config))] == [command, ""]
    assert [hop.proxy_command for hop in parse_route("login", ["a"], config=str(config))] == ["", ""]


def test_of_jump_and_command_the_first_one_counts(config: Path) -> None:
    config.write_text("Host gpu2\n  ProxyJump login\n  ProxyCommand false\n")
    assert [hop.host for hop in parse_route("gpu2", config=str(config))] == ["login", "gpu2"]
    config.write_text("Host gpu2\n  ProxyCommand false\n  ProxyJump login\n")
    assert [hop.proxy_command for hop in parse_route("gpu2", config=str(config))] == ["false"]
    config.write_text("Host gpu2\n  ProxyCommand none\n  ProxyJump login\n")
    assert [hop.host for hop in parse_route("gpu2", config=str(config))] == ["gpu2"]


def test_a_config_that_cannot_be_understood_is_an_error_not_a_guess(config: Path) -> None:
    config.write_text("Match nosuchthing x\n  User wrong\n")
    with pytest.raises(RouteError) as caught:
        parse_route("gpu2", config=str(config))
    assert str(config) in str(caught.value)


@pytest.fixture
def no_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home on a machine without an ssh program, and without a configuration of the whole system."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(ssh_config, "_SYSTEM", tmp_path / "etc" / "ssh_config")
    (tmp_path / ".ssh").mkdir()
    return tmp_path


def test_without_an_ssh_program_destinations_are_as_typed(no_ssh: Path) -> None:
    key = no_ssh / "my key"
    key.write_text("")
    (no_ssh / ".ssh" / "config").write_text("# nothing yet\n\n")
    login, work = parse_route("gpu2", [f"ssh -i '{key}' alice@login -p 7092"])
    assert where((login, work)) == [("alice", "login", 7092), (getpass.getuser(), "gpu2", 22)]
    assert login.identity_files == (key,) and no_ssh / ".ssh" / "id_ed25519" in work.identity_files
    assert work.known_hosts == (no_ssh / ".ssh" / "known_hosts", no_ssh / "etc" / "ssh_known_hosts")


@pytest.mark.parametrize("name", [".ssh/config", "etc/ssh_config", "given"])
def test_without_an_ssh_program_no_configuration_is_ignored(no_ssh: Path, name: str) -> None:
    """It may forbid something."""
    file = no_ssh / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("Host gpu2\n  PasswordAuthentication no\n")
    given = str(file) if name == "given" else None
    with pytest.raises(RouteError, match="can only be read by the ssh program") as caught:
        parse_route("gpu2", config=given)
    assert str(file) in caught.value.cause and "OpenSSH" in caught.value.remedy


@pytest.mark.parametrize("option", ["identity", "config"])
def test_a_missing_file_is_reported_at_once(option: str, tmp_path: Path) -> None:
    name = str(tmp_path / "missing")
    with pytest.raises(GpuKernelError, match="missing"):
        if option == "identity":
            parse_route("gpu2", identity=[name])
        else:
            parse_route("gpu2", config=name)


def test_localhost_alone_needs_no_ssh() -> None:
    (hop,) = parse_route("localhost")
    assert hop.kind == "local"
    assert resolve(["localhost"]) == (hop,)


def test_localhost_behind_a_jump_is_that_machine(config: Path) -> None:
    hops = parse_route("localhost", ["login"], config=str(config))
    assert [(hop.kind, hop.host) for hop in hops] == [("ssh", "login"), ("ssh", "localhost")]


def test_an_empty_route_is_refused() -> None:
    with pytest.raises(RouteError):
        resolve([])


def test_routes_that_differ_in_anything_share_no_connection() -> None:
    """Else a kernelspec would be served with the key, or by the config, of another one."""
    settings = KernelSettings(("login", "gpu2"), ("/a",), "/c")
    others = [{"route": ("gpu2",)}, {"identity": ("/b",)}, {"identity": ()}, {"config": "/d"}, {"config": ""}]
    routes = {RouteSettings.from_settings(settings.replace(**other)) for other in ({}, *others)}
    assert len(routes) == 1 + len(others)
    assert RouteSettings.from_settings(settings.replace(gpus=2, python="/p")) in routes
    assert RouteSettings.from_settings(RouteSettings.from_settings(settings).to_settings()) in routes


def test_a_configuration_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(RouteError, match="cannot be read: File name too long"):
        list(ssh_config.parsed_lines(tmp_path / ("x" * 300)))
