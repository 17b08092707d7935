"""What a model is asked with: the history, the memories, the user's present message."""

from __future__ import annotations

from collections.abc import Sequence

from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock

from llamaindex_rmm._convert import CAPTIONS, Words, text_of, with_text
from rmm_core import Recall
from rmm_core.citable import marker
from rmm_core.recent import RecentRecalls

_CHARACTERS = 4  # of a token, about


def newest_of(history: Sequence[ChatMessage], turns: int, tokens: int) -> list[ChatMessage]:
    """As many messages as are repeated, none of them an answer to one that is not.

    Args:
        history: All of them.
        turns: How many at most.
        tokens: How long they may be together.
    """
    room, start = tokens * _CHARACTERS, len(history)
    while start > max(len(history) - turns, 0) and room >= len(text_of(history[start - 1])):
        start -= 1
        room -= len(text_of(history[start]))
    while 0 < start < len(history) and history[start].role != MessageRole.USER:
        start += 1
    return list(history[start:])


def request(
    history: Sequence[ChatMessage], present: ChatMessage | None, recall: Recall | None, recent: RecentRecalls
) -> list[ChatMessage]:
    """The messages, all copies, with the memories in front of the present message's words, or first where it is none.

    Args:
        history: What was said before.
        present: What the user says now, unless the engine adds that itself.
        recall: The memories.
        recent: Knows what earlier answers cited.
    """
    told = [_marked(message, recall, recent) for message in history]
    memories = recall.instructions(named=True) if recall is not None else ""
    shown = [Words(text=memories)] if memories else []
    if present is not None:
        said = _inert(present)
        return [*told, said.model_copy(update={"blocks": [*shown, *said.blocks]})]
    return [*([ChatMessage(role=MessageRole.SYSTEM, blocks=shown)] if shown else []), *told]


def _inert(message: ChatMessage) -> ChatMessage:
    """A copy of a message whose words are no template; what only we know of it stays behind."""
    blocks = [Words(text=b.text) if isinstance(b, TextBlock) else b.model_copy(deep=True) for b in message.blocks]
    known = {key: value for key, value in message.additional_kwargs.items() if key != CAPTIONS}
    return ChatMessage(role=message.role, blocks=blocks, additional_kwargs=known)


def _marked(message: ChatMessage, recall: Recall | None, recent: RecentRecalls) -> ChatMessage:
    """An earlier message with the markers an answer had, in the numbers of the present recall.

    A model that sees its own answers without markers stops citing.
    """
    inert = _inert(message)
    if recall is None or message.role != MessageRole.ASSISTANT:
        return inert
    behind = recent.behind(recall.user_id, text_of(message))
    if behind is None:
        return inert
    earlier, citations = behind
    again = marker(recall, [m.id for m in earlier.memories(citations.numbers)], citations.status)
    return with_text(inert, f"{text_of(message)} {again}") if again else inert
