"""What stands in for a model, so that the examples of each framework run anywhere: rules, and no weights of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rmm_core import Embedder
from rmm_core.extractive import split_sentences

_MEMORY = re.compile(r'<memory number="(\d+)"[^>\n]*>\n(.*?)\n</memory>', re.DOTALL)
_TURN = re.compile(r"^- \w+, \d+ \w+ \d+, ([^:\n]+): (.*(?:\n    .*)*)", re.MULTILINE)
_OWN = ("Summary: ", "Original turns:")  # what a memory begins with, and a document does not
_LINKS = r"(?:\W+(?:of|for|that|in|at|is)\b)*[\s:,]+"


@dataclass(frozen=True)
class Reply:
    """What is said, or the tool that is called instead."""

    text: str
    tool: str = ""
    arguments: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OfflineRules:
    """Quotes and cites memories, acknowledges statements, and calls tools by a rule.

    It does what a model is asked to do with memories, and nothing else; give the examples ``--model`` for one that
    thinks. Its rules, in this order:

    - A message that names a tool in words ("menu", "search memory" for ``search_memory``) calls it; what follows the
      name, without "of", "for", "that" and the like, is the tool's first argument. The answer is then what the tool
      returned, and the memory nearest to any part of that.
    - A question is answered with the sentence nearest to it that the user said in a numbered memory, or that stands in
      a numbered document, cited as ``[n]``.
    - Anything else is a statement, and is acknowledged.

    Attributes:
        embedder: Tells which sentence is near.
        floor: What is less similar (cosine) is not quoted: 0.4 as in :class:`rmm_core.extractive.ExtractiveAnswerer`.
        agent_name: Who is never quoted: the assistant.
    """

    embedder: Embedder
    floor: float = 0.4
    agent_name: str = "Assistant"

    def reply(self, prompt: str, asked: str, tools: Sequence[dict[str, Any]] = (), found: str | None = None) -> Reply:
        """What to say.

        Args:
            prompt: All that the system and the user said, memories included.
            asked: What the user said last.
            tools: The tools there are, in OpenAI's form.
            found: What a tool just returned.
        """
        if found is not None:
            return Reply(f"{found} {self._quote(prompt, *re.split('[,:;.]', found))}".strip())
        if call := _call(asked, tools):
            return call
        if not asked.rstrip().endswith("?"):
            return Reply("Thank you.")  # no more: small talk is not kept
        unknown = "I do not know that yet." + (" [NO_CITE]" if _MEMORY.search(prompt) else "")
        return Reply(self._quote(prompt, asked) or unknown)

    def _quote(self, prompt: str, *queries: str) -> str:
        """The numbered sentence in ``prompt`` that is nearest to a query, with its marker; empty if none."""
        known = list(self._sentences(prompt))
        if not known:
            return ""
        rows = np.asarray(self.embedder.embed([*queries, *(sentence for _, sentence, _ in known)]))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        near = (rows[len(queries) :] @ rows[: len(queries)].T).max(axis=1)
        source, sentence, number = known[int(near.argmax())]
        return f'{source}: "{sentence}" [{number}]' if near.max() >= self.floor else ""

    def _sentences(self, prompt: str) -> Iterator[tuple[str, str, str]]:
        for number, text in _MEMORY.findall(prompt):
            turns = _TURN.findall(text)
            for speaker, words in turns:
                for sentence in split_sentences(words):
                    if speaker != self.agent_name and not sentence.endswith("?"):
                        yield "You said", sentence, number
            if not turns and not text.startswith(_OWN):
                for sentence in split_sentences(text):
                    yield "It is written", sentence, number


def pieces(text: str) -> list[str]:
    """A text in pieces of a few letters, which cut through words and markers as a real model's tokens do."""
    return re.findall(r".{1,4}", text, re.DOTALL)


def _call(asked: str, tools: Sequence[dict[str, Any]]) -> Reply | None:
    for tool in (t["function"] for t in tools):
        spoken = tool["name"].replace("_", " ")
        named = re.search(rf"\b{spoken}\b{_LINKS}(?P<rest>.+)", asked, re.IGNORECASE | re.DOTALL)
        if named:
            argument = next(iter(tool["parameters"]["properties"]))
            return Reply("", tool["name"], {argument: named["rest"].strip().rstrip("?!")})
    return None
