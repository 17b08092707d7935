"""The memory's spans as runs, for LangChain's callbacks: a child of the run that it is asked in.

Handlers that are coroutines are not told: a span ends where nothing can be awaited.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmm_core.tracing import Attributes, Note

if TYPE_CHECKING:
    from langchain_core.callbacks import CallbackManager


@contextmanager
def as_run(name: str, attributes: Attributes) -> Iterator[Note]:
    """See :data:`rmm_core.tracing.Tracer`."""
    manager = _listening()
    if manager is None:
        yield lambda _: None
        return
    from langchain_core.runnables.config import ensure_config, var_child_runnable_config

    run = manager.on_chain_start({"name": name}, dict(attributes), name=name)
    within = var_child_runnable_config.set({**ensure_config(), "callbacks": run.get_child()})
    told: dict[str, str | int | float | bool] = {}
    try:
        yield told.update
    except BaseException as error:
        run.on_chain_error(error)
        raise
    else:
        run.on_chain_end(told)
    finally:
        var_child_runnable_config.reset(within)


def _listening() -> CallbackManager | None:
    """Those who listen to the run that this happens in; None outside of any."""
    if "langchain_core.runnables.config" not in sys.modules:  # then nothing runs
        return None
    from langchain_core.callbacks import AsyncCallbackHandler, CallbackManager
    from langchain_core.runnables.config import ensure_config

    callbacks = ensure_config().get("callbacks")
    if not callbacks:
        return None
    manager = CallbackManager.configure(inheritable_callbacks=callbacks)
    for handler in [h for h in manager.handlers if isinstance(h, AsyncCallbackHandler)]:
        manager.remove_handler(handler)
    return manager if manager.handlers else None
