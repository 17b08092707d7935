"""Any endpoint that speaks OpenAI's protocol: OpenAI, a llama.cpp server, Ollama, vLLM ..."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rmm_core.errors import EmbedderError, LLMError, MissingDependencyError, RMMError
from rmm_core.types import Matrix


class OpenAILLM:
    """A chat model behind an OpenAI-compatible URL.

    Args:
        model: The model's name there.
        base_url: The endpoint, such as ``http://127.0.0.1:8080/v1``; OpenAI's own when left out.
        api_key: The key; taken from ``OPENAI_API_KEY`` when left out.
        timeout: Seconds to wait for a reply; the client tries twice more, so a hang lasts three times as long.
        **options: Further parameters of the request, such as ``temperature`` (0 unless given) or ``max_tokens``.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 120.0,
        **options: Any,
    ) -> None:
        self.model = model
        self._openai = _openai("OpenAILLM")
        self._clients = _Clients(self._openai, LLMError, base_url, api_key, timeout)
        self._options = {"temperature": 0.0} | options
        self._constrains = True

    def complete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """The model's reply; constrained to ``schema`` where the endpoint can.

        Raises:
            LLMError: When the endpoint cannot be reached or refuses.
        """
        try:
            return _text(self._clients.blocking.chat.completions.create(**self._request(prompt, schema)))
        except self._openai.OpenAIError as error:
            if not self._refuses_schema(error, schema):
                raise LLMError(f"{self.model}: {error}") from error
        return self.complete(prompt)

    async def acomplete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """The same, for event loops."""
        try:
            return _text(await self._clients.of_loop().chat.completions.create(**self._request(prompt, schema)))
        except self._openai.OpenAIError as error:
            if not self._refuses_schema(error, schema):
                raise LLMError(f"{self.model}: {error}") from error
        return await self.acomplete(prompt)

    def _request(self, prompt: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            **self._options,
        }
        if schema is not None and self._constrains:
            request["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
        return request

    def _refuses_schema(self, error: Exception, schema: Mapping[str, Any] | None) -> bool:
        """Whether the request failed for its schema; the endpoint is then not sent one again."""
        refused = isinstance(error, (self._openai.BadRequestError, self._openai.UnprocessableEntityError))
        if refused and schema is not None and self._constrains:
            self._constrains = False
            return True
        return False


class OpenAIEmbedder:
    """An embedding model behind an OpenAI-compatible URL.

    Args:
        model: The model's name there.
        base_url: The endpoint; OpenAI's own when left out.
        api_key: The key; taken from ``OPENAI_API_KEY`` when left out.
        timeout: Seconds to wait; the client tries twice more.
        batch_size: Texts a request.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
        batch_size: int = 256,
    ) -> None:
        self.model = model
        self._openai = _openai("OpenAIEmbedder")
        self._clients = _Clients(self._openai, EmbedderError, base_url, api_key, timeout)
        self._batch_size = batch_size

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Rows of shape ``(len(texts), d)``.

        Raises:
            EmbedderError: When the endpoint cannot be reached or refuses.
        """
        try:
            return _rows(
                [self._clients.blocking.embeddings.create(model=self.model, input=b) for b in self._batches(texts)]
            )
        except self._openai.OpenAIError as error:
            raise EmbedderError(f"{self.model}: {error}") from error

    async def aembed(self, texts: Sequence[str]) -> Matrix:
        """The same, for event loops."""
        try:
            replies = [
                await self._clients.of_loop().embeddings.create(model=self.model, input=b) for b in self._batches(texts)
            ]
        except self._openai.OpenAIError as error:
            raise EmbedderError(f"{self.model}: {error}") from error
        return _rows(replies)

    def _batches(self, texts: Sequence[str]) -> list[list[str]]:
        filled = [text or " " for text in texts]  # endpoints refuse an empty text
        return [filled[i : i + self._batch_size] for i in range(0, len(filled), self._batch_size)]


def _openai(feature: str) -> Any:
    try:
        import openai
    except ImportError as error:
        raise MissingDependencyError(feature, "openai") from error
    return openai


class _Clients:
    """A blocking client, and one for each event loop: a connection lives and dies with its loop."""

    def __init__(
        self, openai: Any, kind: type[RMMError], base_url: str | None, api_key: str | None, timeout: float
    ) -> None:
        if base_url is not None and api_key is None:
            api_key = "not-needed"  # servers of one's own ask for none, the client insists on one
        self._settings = {"base_url": base_url, "api_key": api_key, "timeout": timeout}
        self._openai = openai
        self._loops: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        try:
            self.blocking = openai.OpenAI(**self._settings)
        except openai.OpenAIError as error:
            raise kind(f"cannot use the endpoint: {error}") from error

    def of_loop(self) -> Any:
        """The running loop's client."""
        from asyncio import get_running_loop

        loop = get_running_loop()
        if loop not in self._loops:
            self._loops[loop] = self._openai.AsyncOpenAI(**self._settings)
        return self._loops[loop]


def _text(completion: Any) -> str:
    if not completion.choices or completion.choices[0].message.content is None:
        raise LLMError(f"the endpoint returned no text: {str(completion)[:200]}")
    return str(completion.choices[0].message.content)


def _rows(replies: list[Any]) -> Matrix:
    rows = [item.embedding for reply in replies for item in sorted(reply.data, key=lambda d: d.index)]
    return np.asarray(rows, dtype=np.float32)
