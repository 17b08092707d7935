"""LlamaIndex's messages as turns of a session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rmm_core import Answer, Chat, Citations, Message, Recall, ReflectiveMemory, Turn, parse_citations
from rmm_core.citations import MOST
from rmm_core.flow import Flow
from rmm_core.replies import is_data


def answering(
    memory: ReflectiveMemory, chat: Chat, asked: Message | None, recall: Recall | None, text: str
) -> Flow[Answer]:
    """Store an answer together with what it answers, and learn from what it cites.

    Args:
        memory: The memory.
        chat: The session.
        asked: What the user said; under its key when that is stored already.
        recall: What the model was shown, for an answer that nobody read before.
        text: The answer, with its markers when nobody took them out.
    """
    reply: str | Citations = text
    read = memory.recent.take(chat.user_id, text, recall)
    if read is not None:
        recall, reply = read
    elif recall is not None and (not recall.shown or is_data(text)):  # brackets are nobody's markers
        recall = None
    if read is None and recall is not None:
        reply = memory.citations(recall, text)
    if isinstance(reply, Citations) and not reply.text.strip() and asked is not None and asked.key:
        asked = None  # stored before, and there is no turn of the answer that its feedback could go with
    query = asked or Message("user", "")
    reply_key = query.key and f"{query.key}/reply"
    try:
        answer = yield from chat.recording(
            query.text, reply, recall, attachments=query.attachments, key=query.key, reply_key=reply_key
        )
    except BaseException:
        if read is not None:  # for whoever stores it again
            memory.recent.read(read[0].id, replace(read[1], text=text))
        raise
    if recall is not None:
        memory.recent.recorded(recall, answer.citations)
    return answer


def unstored(messages: Iterable[Message], turns: Sequence[Turn]) -> list[Message]:
    """Those messages that are not among the turns, each turn being one message."""
    held = Counter((t.role, _plain(t.text)) for t in turns)
    found = []
    for message in messages:
        key = (message.role, _plain(message.text))
        if held[key]:
            held[key] -= 1
        else:
            found.append(message)
    return found


def _plain(text: str) -> str:
    return parse_citations(text, MOST).text.strip()
