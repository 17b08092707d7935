"""The options of the LangChain examples."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, ExitStack

from _models import llama_server
from _offline_chat import OfflineChatModel
from _options import Choice, Framework, choosing
from langchain_core.language_models import BaseChatModel


def choice(story: str | None, *, agent: bool = False) -> AbstractContextManager[Choice[BaseChatModel]]:
    """See :func:`_options.choosing`."""
    return choosing(_LANGCHAIN, story, agent=agent)


def _named(name: str) -> BaseChatModel:
    from langchain.chat_models import init_chat_model

    return init_chat_model(name)


def _local(stack: ExitStack, gguf: str | None) -> BaseChatModel:
    try:
        from langchain_openai import ChatOpenAI
    except ImportError:
        sys.exit("--model local needs LangChain's client for its server: pip install langchain-openai")
    url = stack.enter_context(llama_server(gguf, option="--model"))
    return ChatOpenAI(
        base_url=url, api_key="not-needed", model="local", temperature=0, max_tokens=400, timeout=900, max_retries=0
    )


_LANGCHAIN = Framework(
    offline=lambda rules: OfflineChatModel(rules=rules),
    named=_named,
    local=_local,
    names="provider:name",
    known="that init_chat_model knows, such as openai:gpt-4o-mini",
)
