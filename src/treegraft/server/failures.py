"""Errors as the OpenAI error object, with their HTTP status. Knows no route and no request."""

from typing import Any

from treegraft.errors import ContextTooLongError, ServerError, TreegraftError, UsageError

MAX_MESSAGE_CHARACTERS = 1000
MAX_PARAM_CHARACTERS = 200


class RequestError(UsageError):
    """A request that cannot be served as it stands: HTTP status, and the field and code that OpenAI
    clients read."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.status = status


def status_of(error: TreegraftError) -> int:
    """HTTP status for an error: 4xx where the request must change, 503 where the server is not there."""
    if isinstance(error, RequestError):
        return error.status
    if isinstance(error, UsageError):
        return 400
    return 503 if isinstance(error, ServerError) else 500


def error_object(error: TreegraftError) -> dict[str, Any]:
    """{"error": {"message", "type", "param", "code"}}."""
    status = status_of(error)
    code, param = None, None
    if isinstance(error, RequestError):
        code, param = error.code, error.param
    elif isinstance(error, ContextTooLongError):
        code, param = "context_length_exceeded", None
    elif isinstance(error, ServerError):
        code = "engine_unavailable"
    kind = "invalid_request_error" if status < 500 else "server_error"
    param = None if param is None else _short(param, MAX_PARAM_CHARACTERS)
    return {
        "error": {"message": _short(str(error), MAX_MESSAGE_CHARACTERS), "type": kind, "param": param, "code": code}
    }


def _short(text: str, limit: int) -> str:
    """One line of bounded length: what a request held may be quoted in it."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."
