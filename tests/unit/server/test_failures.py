"""Each kind of error has its status and the OpenAI error object."""

import pytest

from treegraft.errors import ContextTooLongError, ModelError, ServerError, UsageError
from treegraft.server.failures import RequestError, error_object, status_of


@pytest.mark.parametrize(
    ("error", "status", "kind", "param", "code"),
    [
        (RequestError("x", param="n", code="c"), 400, "invalid_request_error", "n", "c"),
        (RequestError("x", status=404), 404, "invalid_request_error", None, None),
        (UsageError("x"), 400, "invalid_request_error", None, None),
        (ContextTooLongError("x"), 400, "invalid_request_error", None, "context_length_exceeded"),
        (ServerError("x"), 503, "server_error", None, "engine_unavailable"),
        (ModelError("x"), 500, "server_error", None, None),
    ],
)
def test_error_objects(error, status, kind, param, code):
    assert status_of(error) == status
    assert error_object(error) == {"error": {"message": "x", "type": kind, "param": param, "code": code}}


def test_a_message_is_one_line_of_bounded_length():
    error = error_object(RequestError("a\nb " + "x" * 5000, param="c\n" + "y" * 5000))["error"]
    assert error["message"].startswith("a b xxx")
    assert error["param"].startswith("c yyy")
    assert len(error["message"]) <= 1000
    assert len(error["param"]) <= 200
