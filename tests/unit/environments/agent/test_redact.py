"""Secrets stay on the host."""

import pytest

from treegraft.environments.agent.redact import redact_command, redact_text, redact_url, redact_variables


@pytest.mark.parametrize(
    ("text", "secret", "kept"),
    [
        ("https://user:hunter2@index.example/simple", "hunter2", "https://***@index.example/simple"),
        ("https://tok3n@index.example/simple", "tok3n", "index.example"),
        ("git+https://oauth2:s3cret@git.example/a.git@v1", "s3cret", "git.example/a.git@v1"),
        ("https://index.example/simple?token=abc123&x=1", "abc123", "x=1"),
        ("https://bucket.example/w.whl?X-Amz-Signature=deadbeef", "deadbeef", "w.whl"),
        ("HF_TOKEN=hf_abcdefghij python serve.py", "hf_abcdefghij", "serve.py"),
        ("use hf_abcdefghijklmnop here", "hf_abcdefghijklmnop", "here"),
        ("AWS_SECRET_ACCESS_KEY='a b c' run", "a b c", "run"),
    ],
)
def test_text(text: str, secret: str, kept: str) -> None:
    shown = redact_text(text)
    assert secret not in shown
    assert kept in shown


def test_token_in_the_path_of_an_index() -> None:
    token = "a1" * 20
    assert redact_url(f"https://index.example/{token}/simple/") == "https://index.example/***/simple/"


def test_only_allowed_variables_and_those_redacted() -> None:
    environ = {
        "HF_TOKEN": "hf_secretsecret",
        "MY_PASSWORD": "x",
        "LD_LIBRARY_PATH": "/opt/lib",
        "PIP_INDEX_URL": "https://u:p@index.example/simple",
        "UV_INDEX": "",
    }
    assert redact_variables(environ) == {
        "LD_LIBRARY_PATH": "/opt/lib",
        "PIP_INDEX_URL": "https://***@index.example/simple",
    }


@pytest.mark.parametrize("option", ["--api-key", "--hf-token", "--password", "-token"])
def test_value_after_a_secret_option(option: str) -> None:
    shown = redact_command(["python", "serve.py", option, "s3cr3t", "--port", "30000"])
    assert "s3cr3t" not in shown
    assert shown.endswith(f"{option} *** --port 30000")


def test_value_joined_to_a_secret_option() -> None:
    assert redact_command(["serve", "--api-key=s3cr3t", "--port=1"]) == "serve --api-key=*** --port=1"
