"""Every error this package raises on purpose.

::

    RMMError
    ├── ConfigError              a setting that cannot work (also a ValueError)
    ├── InputError               an argument that cannot work (also a ValueError)
    │   └── DimensionError       an embedding of another width than the bank's
    ├── NotFoundError            no such session, memory or file (also a LookupError)
    ├── MissingDependencyError   a feature whose extra is not installed (also an ImportError)
    ├── ModelError               a model did not do its part
    │   ├── LLMError             the language model could not be asked
    │   ├── ReplyError           it replied, and nothing usable was in the reply
    │   └── EmbedderError        the embedder failed or returned another shape
    └── StoreError               the database could not do its part
        ├── ConflictError        somebody else committed first
        │   └── LeaseError       somebody else reflects this session
        ├── WrongKeyError        the file does not open with this key, or without one
        └── StoreClosedError     used after ``close``

Errors of other libraries are translated where they are called, and chained.
"""

from __future__ import annotations


class RMMError(Exception):
    """Root of the tree: catch this to catch everything raised on purpose."""


class ConfigError(RMMError, ValueError):
    """A setting that does not exist or cannot work."""


class InputError(RMMError, ValueError):
    """An argument that cannot work: a blank user id, a malformed import line."""


class DimensionError(InputError):
    """An embedding whose width is not the one the bank was built with."""

    def __init__(self, bank: int, given: int) -> None:
        super().__init__(
            f"this bank holds embeddings of width {bank}, the embedder returns width {given}; "
            "use the embedder the bank was built with, or call memory.reembed() to move the bank to this one"
        )
        self.bank = bank
        self.given = given


class NotFoundError(RMMError, LookupError):
    """No such session, memory or file."""


class MissingDependencyError(RMMError, ImportError):
    """A feature was used whose optional packages are not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an extra that is not installed: pip install 'reflective-memory[{extra}]'")
        self.extra = extra


class ModelError(RMMError):
    """A model did not do its part; nothing that was said is lost by it."""


class LLMError(ModelError):
    """The language model could not be asked: network, quota, refusal, time-out."""


class ReplyError(ModelError):
    """The language model replied and nothing usable was found in the reply.

    Attributes:
        reply: The reply as it came.
    """

    def __init__(self, message: str, reply: str) -> None:
        super().__init__(f"{message}; the reply begins {reply[:120]!r}")
        self.reply = reply


class EmbedderError(ModelError):
    """The embedder failed, or returned something that is not one finite row per text."""


class StoreError(RMMError):
    """The database could not do its part."""


class ConflictError(StoreError):
    """Somebody else committed first; read again and decide again."""


class LeaseError(ConflictError):
    """Another worker reflects this session."""


class WrongKeyError(StoreError):
    """A file that the given key, or the lack of one, does not open; the attempt left it as it was."""


class StoreClosedError(StoreError):
    """The memory was used after ``close()``."""
