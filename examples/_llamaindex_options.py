"""The options of the LlamaIndex examples."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, ExitStack

from _llamaindex_models import ChatLLM, EndpointLLM, OfflineLLM
from _models import llama_server
from _options import Choice, Framework, choosing


def choice(story: str | None, *, agent: bool = False) -> AbstractContextManager[Choice[ChatLLM]]:
    """See :func:`_options.choosing`."""
    return choosing(_LLAMAINDEX, story, agent=agent)


def _named(name: str) -> ChatLLM:
    provider, _, model = name.partition(":")
    if provider != "openai" or not model:
        sys.exit(f"--model is openai:NAME or local; got {name!r}")
    return _endpoint(model)


def _local(stack: ExitStack, gguf: str | None) -> ChatLLM:
    url = stack.enter_context(llama_server(gguf, option="--model"))
    client = {"base_url": url, "api_key": "not-needed", "timeout": 900, "max_retries": 0}
    return _endpoint("local", client=client, options={"temperature": 0, "max_tokens": 400})


def _endpoint(name: str, **settings: dict) -> ChatLLM:
    try:
        return EndpointLLM(name=name, **settings)
    except ImportError:
        sys.exit("--model needs the client of such endpoints: pip install openai")


_LLAMAINDEX = Framework(
    offline=lambda rules: OfflineLLM(rules=rules),
    named=_named,
    local=_local,
    names="openai:name",
    known="behind OpenAI's API or the compatible one at OPENAI_BASE_URL, such as openai:gpt-4o-mini",
)
