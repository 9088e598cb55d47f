"""The port comes first, and a taken one is an error of one line."""

import subprocess
import sys

import pytest

from treegraft.errors import ServerError, UsageError
from treegraft.server.launch import listen


def test_a_second_listener_on_a_port_is_refused_by_number():
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ServerError, match=f"port {port} .* is in use") as caught:
            listen("127.0.0.1", port)
        assert caught.value.exit_code == 1


def test_the_port_is_free_again_afterwards():
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
    with listen("127.0.0.1", port) as second:
        assert second.getsockname()[1] == port


@pytest.mark.parametrize("host", ["no.such.host.invalid", "300.1.1.1", "a" * 300])
def test_an_unknown_host_is_a_usage_error(host):
    with pytest.raises(UsageError, match="no address to listen on"):
        listen(host, 0)


def test_an_address_of_another_machine_is_a_server_error():
    with pytest.raises(ServerError, match="cannot listen on"):
        listen("192.0.2.1", 0)


def test_the_http_process_does_without_torch():
    script = "import sys, treegraft.server.launch; print('torch' in sys.modules, 'transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
