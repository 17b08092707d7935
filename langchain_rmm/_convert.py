"""LangChain's messages and documents as values of the core, and back; nothing here asks or stores anything."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from rmm_core import Attachment, InputError, Message, Recall, Turn
from rmm_core.citable import described, only_recall, recalls_of
from rmm_core.prompts import memory_text

_MEDIA = {"image": "image", "audio": "audio", "video": "video", "file": "document"}
_CAPTIONS = ("caption", "alt", "title", "transcript", "filename", "name")


def text_of(content: Any) -> str:
    """The words of a message, a list of messages or content blocks, or a plain text; media are left out.

    Raises:
        InputError: When there is no text to be had from it.
    """
    match content:
        case str():
            return content
        case BaseMessage():
            parts = content.content
            return parts if isinstance(parts, str) else "".join(text_of(part) for part in parts)
        case [*parts]:
            return "\n".join(filter(None, (text_of(part) for part in parts)))
        case {"text": str(text)} if content.get("type", "text") in ("text", "text-plain"):
            return text
        case {"type": str()}:
            return ""
    raise InputError(f"a text, a message or a list of them is wanted; got {type(content).__name__}")


def attachments_of(value: Any) -> tuple[Attachment, ...]:
    """What came with a message, or with a list of them: images, audio, video, files, with captions where they have one.

    Content that is inside of the message is named by its SHA-256 and not kept.
    """
    if isinstance(value, list | tuple):
        return tuple(attachment for part in value for attachment in attachments_of(part))
    if not isinstance(value, BaseMessage) or isinstance(value.content, str):
        return ()
    blocks: Iterable[Mapping[str, Any]] = value.content_blocks
    return tuple(_attachment(b) for b in blocks if b.get("type") in _MEDIA)


def spoken(message: BaseMessage) -> Message | None:
    """A message as something said; None for what nobody said: system and tool messages, tool calls, summaries.

    Its id and its words become the key, so that the same message is stored once, and an edited one anew.
    """
    if not isinstance(message, HumanMessage | AIMessage) or message.additional_kwargs.get("lc_source"):
        return None
    text = text_of(message)
    key = message_key(message.id, text)
    if isinstance(message, AIMessage):
        return Message("agent", text, key=key) if text.strip() else None
    attachments = attachments_of(message)
    return Message("user", text, attachments=attachments, key=key) if text.strip() or attachments else None


def message_key(message_id: str | None, text: str) -> str:
    """What a message is stored under; empty when its host gave it no id."""
    return f"{message_id}:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}" if message_id else ""


def message_of(turn: Turn) -> BaseMessage:
    """A turn as a message; what came with it as blocks where a model can fetch it, else as its caption."""
    if turn.role == "agent":
        return AIMessage(turn.content)
    fetchable = [a for a in turn.attachments if a.uri.startswith(("http://", "https://")) and a.kind in _MEDIA.values()]
    if not fetchable:
        return HumanMessage(turn.content)
    blocks: list[str | dict[Any, Any]] = [{"type": "text", "text": turn.content}] if turn.content else []
    for attachment in fetchable:
        kind = "file" if attachment.kind == "document" else attachment.kind
        blocks.append({"type": kind, "url": attachment.uri, "extras": {"caption": attachment.caption}})
    return HumanMessage(blocks)


def documents_of(recall: Recall) -> list[Document]:
    """The memories a recall shows, as documents."""
    scores = {c.memory.id: c.score for c in recall.candidates}
    return [
        Document(
            id=shown.memory.id,
            page_content=memory_text(shown),
            metadata=described(recall, shown) | {"score": scores[shown.memory.id]},
        )
        for shown in recall.shown
    ]


def numbered(documents: Sequence[Document]) -> list[tuple[int, Document]]:
    """Documents with the numbers that an answer cites them by.

    Those of one recall keep the number they have there, and others follow. Those of several recalls, whose numbers
    clash, are numbered anew, a memory that several of them found once.
    """
    if len(recalls_of(d.metadata for d in documents)) > 1:
        distinct = {d.metadata.get("memory_id", place): d for place, d in reversed(list(enumerate(documents)))}
        return list(enumerate(reversed(distinct.values()), start=1))
    last = max((d.metadata["index"] for d in documents if "recall_id" in d.metadata), default=0)
    following = count(last + 1)
    return [(d.metadata["index"] if "recall_id" in d.metadata else next(following), d) for d in documents]


def recall_key(documents: Sequence[Document]) -> tuple[str, str] | None:
    """The user and the id of the recall that documents come from; see :func:`rmm_core.citable.only_recall`."""
    return only_recall((d.metadata for d in documents), "documents")


def _attachment(block: Mapping[str, Any]) -> Attachment:
    kind = _MEDIA[block["type"]]
    if block.get("url"):
        uri = str(block["url"])
    elif block.get("file_id"):
        uri = f"file-id:{block['file_id']}"
    else:
        uri = "sha256:" + hashlib.sha256(str(block.get("base64", "")).encode()).hexdigest()
    if uri.startswith("data:"):
        uri = "sha256:" + hashlib.sha256(uri.partition(",")[2].encode()).hexdigest()
    sources = (block, block.get("extras") or {}, block.get("metadata") or {})
    captions = (s[name] for name in _CAPTIONS for s in sources if isinstance(s.get(name), str) and s[name].strip())
    return Attachment(kind, uri, next(captions, ""))
