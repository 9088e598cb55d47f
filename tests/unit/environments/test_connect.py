"""Names of environments, what ssh's messages mean, and running things here."""

import time

import pytest

from treegraft.environments.connect import Destination, LocalHost, connect, explain_ssh_failure, parse_destination
from treegraft.errors import HostError, UsageError


@pytest.mark.parametrize(
    ("text", "host", "path"),
    [
        ("/srv/venv", None, "/srv/venv"),
        ("venv", None, "venv"),
        ("./a:b", None, "./a:b"),
        ("../a:b", None, "../a:b"),
        ("/a:b", None, "/a:b"),
        ("~/venv", None, "~/venv"),
        (".", None, "."),
        ("dir/with:colon", None, "dir/with:colon"),
        ("b:/srv/venv", "b", "/srv/venv"),
        ("b:venv", "b", "venv"),
        ("b:", "b", ""),
        ("b:~/venv", "b", "~/venv"),
        ("b:/x:y", "b", "/x:y"),
        ("user@gpu-1.example:/v", "user@gpu-1.example", "/v"),
        ("[::1]:/v", "::1", "/v"),
        ("me@[fe80::1%eth0]:/v", "me@fe80::1%eth0", "/v"),
        ("b:/a@b", "b", "/a@b"),
    ],
)
def test_destination(text: str, host: str | None, path: str) -> None:
    assert parse_destination(text) == Destination(host, path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-oProxyCommand=touch x:/v",
        ":/v",
        "-l@host:/v",
        "me@-x:/v",
        "[::1]/v",
        "[::1:/v",
        "a b:/v",
        "h\x1b[1m:/v",
        "me@:/v",
    ],
)
def test_refused_destination(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_destination(text)
    assert "\x1b" not in str(caught.value)


def test_destination_is_shown_as_it_was_typed() -> None:
    assert [str(parse_destination(text)) for text in ("b:/v", "/v")] == ["b:/v", "/v"]


@pytest.mark.parametrize(
    ("messages", "meaning"),
    [
        ("ssh: connect to host b port 22: Connection refused\r\n", "it refuses the connection"),
        ("ssh: connect to host b port 22: Connection timed out\r\n", "it does not answer"),
        ("Connection timed out during banner exchange\n", "it does not answer"),
        ("ssh: Could not resolve hostname b: Name or service not known\r\n", "its name is not known"),
        ("ssh: connect to host b port 22: No route to host\n", "there is no route to it"),
        ("me@b: Permission denied (publickey).\n", "it refuses your login"),
        ("No ED25519 host key is known for b and you have requested strict checking.\nHost key verification failed.\n",
         "its host key is not known"),
        ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.\n",
         "its host key is not the one in your known_hosts"),
        ("something \x1b[31modd\n", "ssh failed (something \\x1b[31modd)"),
        ("", "ssh failed (no message)"),
    ],
)  # fmt: skip
def test_ssh_failures_are_one_line(messages: str, meaning: str) -> None:
    line = explain_ssh_failure("b", messages)
    assert line.startswith(f"host b: {meaning}")
    assert "\n" not in line


def test_local_runs_words_as_they_are() -> None:
    host = connect(parse_destination("/x"))
    assert host.is_local
    done = host.run(["printf", "%s|", "a b", "$HOME", "*"], b"")
    assert (done.returncode, done.output) == (0, b"a b|$HOME|*|")


def test_local_input_larger_than_any_pipe_and_a_reader_that_leaves() -> None:
    data = b"x" * (4 << 20)
    assert LocalHost().run(["wc", "-c"], data).output.strip() == str(len(data)).encode()
    assert LocalHost().run(["head", "-c", "3"], data).output == b"xxx"


def test_local_program_that_is_not_there() -> None:
    assert LocalHost().run(["no-such-program-here"]).returncode == 127


def test_output_comes_while_it_is_made() -> None:
    seen: list[bytes] = []
    LocalHost().run(["sh", "-c", "echo one; sleep 0.3; echo two"], on_output=seen.append)
    assert seen == [b"one\n", b"two\n"]


def test_silence_is_given_up() -> None:
    with pytest.raises(HostError, match=r"^this machine: no answer for 0.3 s"):
        LocalHost().run(["sleep", "30"], idle_timeout_s=0.3)


def test_pipes_that_a_background_process_holds_are_not_waited_for() -> None:
    """What a connection does that ssh keeps open for the next call."""
    begin = time.monotonic()
    done = LocalHost().run(["sh", "-c", "sleep 30 & echo done; exit 4"])
    assert (done.returncode, done.output) == (4, b"done\n")
    assert time.monotonic() - begin < 20
