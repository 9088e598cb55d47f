"""Every error a user can meet, with its exit code. Knows nothing of who raises or prints them.

    TreegraftError            1   something failed
    ├── UsageError            2   the call's words are off (arguments, request fields, config keys)
    │   └── ContextTooLongError   prompt + max_tokens do not fit
    ├── ModelError            1   a model cannot be used
    │   ├── CheckpointError       tensors or config keys missing, extra, misshapen, pickled
    │   ├── UnsupportedModelError an architecture, tokenizer or format this version cannot serve
    │   └── DrafterError          a drafter that does not fit its target
    ├── DownloadError         1   a fetch failed, was cut short or does not match its hash
    ├── HostError             1   a host, shell or interpreter does not answer as it must
    │   └── NothingThereError     nothing lies at the path that was named
    ├── ServerError           1   the server or its engine process cannot start or has died
    ├── RecordError           1   a JSON document of unknown kind, version or keys
    ├── TrainingError         1   a training stage cannot go on
    ├── BlockedError          3   findings of level block forbid the step
    └── WorldChangedError     4   the world is not what the plan was made for

A message says what, the value seen, what was expected, and what to do, in one line.
"""


class TreegraftError(Exception):
    """Base of all errors that are a user's, machine's or peer's fault; `exit_code` is the process's."""

    exit_code = 1


class UsageError(TreegraftError, ValueError):
    """Also a ValueError, so that callers of the Python API can catch it as one."""

    exit_code = 2


class ContextTooLongError(UsageError):
    """The prompt, or prompt + max_tokens, exceeds the context limit."""


class ModelError(TreegraftError):
    pass


class CheckpointError(ModelError):
    pass


class UnsupportedModelError(ModelError):
    pass


class DrafterError(ModelError):
    pass


class DownloadError(TreegraftError):
    pass


class HostError(TreegraftError):
    pass


class NothingThereError(HostError):
    pass


class ServerError(TreegraftError):
    pass


class RecordError(TreegraftError):
    pass


class TrainingError(TreegraftError):
    pass


class BlockedError(TreegraftError):
    exit_code = 3


class WorldChangedError(TreegraftError):
    exit_code = 4
