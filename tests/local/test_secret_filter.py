"""What looks like a secret, and what does not: a table of both kinds. No message repeats the secret."""

from __future__ import annotations

import pytest

from jupyter_gpu_kernel.errors import SettingsError
from jupyter_gpu_kernel.settings import parse, secret_filter

HEX40 = "0123456789abcdef0123456789abcdef01234567"
SECRET_VARIABLES = [
    ("PGPASSWORD", "x"),
    ("DB_PASS", "hunter2"),
    ("db_pass", "hunter2"),
    ("PASS", "hunter2"),
    ("MYSQL_PWD", "hunter2"),
    ("PASSWORD_PROD", "12345678"),
    ("AWS_SECRET_ACCESS_KEY", "x"),
    ("SECRET_KEY_BASE", "x"),
    ("WANDB_API_KEY", "abc"),
    ("OPENAI_APIKEY", "abc"),
    ("NGROK_AUTHTOKEN", "abc"),
    ("HF_TOKEN", "abc"),
    ("API_TOKEN2", "abc"),
    ("GITHUB_PAT", "abc"),
    ("WANDB_KEY", HEX40),
    ("X", "ghp_0123456789abcdefghij"),
    ("X", "github_pat_11ABCDEFG0123456789abcdef"),
    ("X", "hf_abcdefghijklmnopqrstuv"),
    ("X", "sk-0123456789abcdefghij"),
    ("X", "sk-proj-abcDEF123-456_789xyz"),
    ("X", "glpat-0123456789abcdefghij"),
    ("X", "AKIAIOSFODNN7EXAMPLE"),
    ("X", "xoxb-1234567890-abc"),
    ("X", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0AAA.c2lnbmF0dXJl"),
    ("X", "-----BEGIN OPENSSH PRIVATE KEY-----"),
    ("HTTPS_PROXY", "http://alice:hunter2@proxy:3128"),
    ("DATABASE_URL", "postgres://alice:hunter2@db/x"),
    ("REDIS_URL", "redis://:hunter2@cache:6379"),
]
PLAIN_VARIABLES = [
    ("PASSENGER_COUNT", "3"),
    ("TOKENIZERS_PARALLELISM", "false"),
    ("BYPASS", "1"),
    ("COMPASS_DIR", "compass"),
    ("MAX_TOKENS", "4096"),
    ("MAX_TOKEN", "4096"),
    ("TOKEN_LIMIT", "512"),
    ("TOKEN_POOLING", "mean"),
    ("PAD_TOKEN", "<pad>"),
    ("MASK_TOKEN", "[MASK]"),
    ("FIRST_PASS", "true"),
    ("PASS_RATE", "0.9"),
    ("PWD", "work"),
    ("OLDPWD", "work"),
    ("MONKEY", "1"),
    ("SORT_KEY", "name"),
    ("KEYS", "a,b"),
    ("KEYBOARD", "de"),
    ("SSL_KEY", "/etc/key.pem"),
    ("SSH_KEY", "~/.ssh/id_rsa"),
    ("GOOGLE_APPLICATION_CREDENTIALS", "creds.json"),
    ("SECRET_NAME", "db-credentials"),
    ("PASSWORD_FILE", "pw"),
    ("HF_TOKEN_PATH", "here"),
    ("HF_TOKEN", "$(cat ~/.hf)"),
    ("HF_TOKEN", ""),
    ("USE_AUTH_TOKEN", "True"),
    ("HTTPS_PROXY", "http://proxy:3128"),
    ("HTTPS_PROXY", "http://alice:$PW@proxy:3128"),
    ("URL", "http://host:8080/a@b"),
    ("URL", "http://[::1]:8080/a"),
    ("X", "task-scheduler-config-2"),
    ("X", "risk-0123456789abcdefghij"),
    ("X", "-----BEGIN CERTIFICATE-----"),
]
SECRET_LINES = [
    "export X_TOKEN=abc",
    "module load cuda; export HF_TOKEN='a b'",
    'true && DB_PASS="hunter2" make',
    "setenv HF_TOKEN abc",
    "curl -u alice:hunter2 https://host/x",
    "curl -fsSu 'alice:hunter2' https://host/x | sh",
    "curl --user=alice:hunter2 https://host/x",
    'curl -H "Authorization: Bearer abcdef123456" https://host',
    f"wandb login {HEX40}",
    f"wandb login --relogin {HEX40}",
    "huggingface-cli login --token abc",
    "wget --http-password=hunter2 https://host",
    "sshpass -p hunter2 ssh host",
    "docker login -u alice -p hunter2 host",
    "git clone https://alice:hunter2@host/x.git",
    "pip install --index-url https://__token__:hunter2@host/simple x",
    "git clone https://ghp_0123456789abcdefghij@github.com/x/y",
    "echo '-----BEGIN RSA PRIVATE KEY-----' > key",
]
PLAIN_LINES = [
    "module load cuda/12.4 gcc/13",
    "source ~/venv/bin/activate",
    "conda activate ml",
    "ulimit -c 0",
    "export TOKENIZERS_PARALLELISM=false MAX_TOKENS=100",
    "export HF_TOKEN=$(cat ~/.hf)",
    'export HF_TOKEN="$(cat ~/.hf)"',
    "export HF_TOKEN=$MY_TOKEN",
    "[ -n \"$HF_TOKEN\" ] || echo no HF_TOKEN",
    'curl -u "$NAME:$PASS" https://host',
    "curl -fsSL https://host:8443/install.sh | sh",
    "wandb login",
    "wandb login --relogin",
    "wandb login --host https://wandb.example.org",
    "wandb login $WANDB_API_KEY",
    'hf auth login --token "$HF_TOKEN"',
    "docker login --password-stdin < ~/pw",
    "docker run -u 1000:1000 x",
    "run --max-tokens 5 --pad-token '<pad>'",
    "cp -u a:b c",
    "export PYTHONPATH=$HOME/src:$PYTHONPATH",
]  # fmt: skip


@pytest.mark.parametrize("name, value", SECRET_VARIABLES)
def test_variables_that_are_secrets(name: str, value: str) -> None:
    with pytest.raises(
        SettingsError, match=rf"{name} (looks like|contains what looks like)(.|\n)*--env-file"
    ) as error:
        parse({"route": ["gpu2"], "env": {name: value}})
    assert len(value) < 4 or value not in str(error.value)


@pytest.mark.parametrize("name, value", PLAIN_VARIABLES)
def test_variables_that_are_none(name: str, value: str) -> None:
    assert secret_filter.in_variable(name, value) == ""


@pytest.mark.parametrize("line", SECRET_LINES)
def test_lines_with_secrets(line: str) -> None:
    with pytest.raises(
        SettingsError, match=r"line 2 of “setup” contains what looks like a(.|\n)*--env-file"
    ) as error:
        parse({"route": ["gpu2"], "setup": ["true", line]})
    for secret in ("hunter2", "abcdef", "ghp_", "a b"):
        assert secret not in str(error.value)


@pytest.mark.parametrize("line", PLAIN_LINES)
def test_lines_without(line: str) -> None:
    assert secret_filter.in_line(line) == ""
