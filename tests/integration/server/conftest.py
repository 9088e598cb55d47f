"""Real server processes over tiny random models."""

import json
import signal
import subprocess

import pytest
from server_runs import PATIENCE_SECONDS, Server, command, environment, first_line
from tiny_models import TinyShape, write_drafter, write_target
from tiny_tokenizer import write_tokenizer

SHAPE = TinyShape(max_context=16384)
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Folder of tiny models: `chat` (tokenizer and template), `text` (no template), `ids` (no tokenizer), `drafter`
    for all three, `misfit` (a drafter of another target)."""
    root = tmp_path_factory.mktemp("models")
    write_tokenizer(write_target(root / "chat", SHAPE), SHAPE.vocab_size, TEMPLATE)
    write_tokenizer(write_target(root / "text", SHAPE), SHAPE.vocab_size)
    write_target(root / "ids", SHAPE)
    write_drafter(root / "drafter", SHAPE)
    write_drafter(root / "misfit", TinyShape(num_layers=5))
    return root


@pytest.fixture(scope="session")
def start_server(models, tmp_path_factory):
    """start_server(model, *options) -> Server, stopped at the end of the session."""
    running = []

    def start(model, *options):
        log = tmp_path_factory.mktemp("logs") / "stderr"
        arguments = (models / model, "--drafter", models / "drafter", "--budget", 8, "--port", 0, "--json", *options)
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                command("--served-model-name", model, *arguments),
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment(),
                text=True,
            )
        running.append(process)
        line = first_line(process.stdout)
        assert line, log.read_text()
        return Server(process, json.loads(line), log)

    yield start
    for process in running:
        process.send_signal(signal.SIGTERM)
    for process in running:
        assert process.wait(PATIENCE_SECONDS) is not None
        process.stdout.close()


@pytest.fixture(scope="session")
def server(start_server):
    """The server that most tests share; they leave nothing running on it."""
    return start_server("chat")


@pytest.fixture
def client(server):
    with server.client() as client:
        yield client


@pytest.fixture
def http(server):
    with server.http() as http:
        yield http
