"""LoCoMo (Maharana et al., ACL 2024), read from the official file by path, as ``.json`` or ``.json.xz``.

Two people over many sessions; the first named is taken for the user. The recorded ``observation`` of the file are its
facts: what a language model extracted from each session, with turn ids. A category is called by its name; questions of
the adversarial one ask for what was never said, and are not ``answerable``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.datasets import Conversation, Question, Sitting, read_json, reading
from rmm_core import Attachment, Message, TurnRef
from rmm_core.types import Extracted

WHERE = "LoCoMo is had at https://github.com/snap-research/locomo, data/locomo10.json (CC BY-NC 4.0)"
KINDS = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_DIA = re.compile(r"D(\d+):(\d+)")


def load(path: str | Path) -> list[Conversation]:
    """All conversations of the file, with all their questions.

    Raises:
        ValueError: When the file is not there or something else.
    """
    with reading(path, "a LoCoMo file", WHERE):
        return [_conversation(c) for c in read_json(path)]


def answerable(conversation: Conversation) -> Conversation:
    """The same without adversarial questions and those without evidence."""
    kept = tuple(q for q in conversation.questions if q.evidence and not q.abstains)
    return replace(conversation, questions=kept)


def _conversation(c: dict[str, Any]) -> Conversation:
    talk = c["conversation"]
    numbers = sorted(int(k.split("_")[1]) for k in talk if re.fullmatch(r"session_\d+", k) and talk[k])
    places = {
        turn["dia_id"]: TurnRef(f"session_{n}", i) for n in numbers for i, turn in enumerate(talk[f"session_{n}"])
    }
    sittings = tuple(_sitting(c, n, places) for n in numbers)
    questions = tuple(_question(f"{c['sample_id']} {i}", q, places) for i, q in enumerate(c["qa"]))
    return Conversation(c["sample_id"], sittings, questions, (talk["speaker_a"], talk["speaker_b"]))


def _sitting(c: dict[str, Any], n: int, places: dict[str, TurnRef]) -> Sitting:
    talk, name = c["conversation"], f"session_{n}"
    facts = []
    for of_speaker in c["observation"].get(f"{name}_observation", {}).values():
        for summary, where in of_speaker:
            found = _places(where, places)
            here = tuple(sorted(ref.index for ref in found if ref.session_id == name))
            if here:
                facts.append(Extracted(summary, here))
    at = datetime.strptime(talk[f"{name}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    messages = tuple(_message(t, talk["speaker_a"]) for t in talk[name])
    return Sitting(name, at, messages, tuple(facts), c.get("session_summary", {}).get(f"{name}_summary", ""))


def _message(turn: dict[str, Any], first: str) -> Message:
    caption = turn.get("blip_caption", "")
    photos = (Attachment("image", (turn.get("img_url") or [""])[0], caption),) if caption else ()
    return Message("user" if turn["speaker"] == first else "agent", turn["text"], turn["speaker"], attachments=photos)


def _question(name: str, q: dict[str, Any], places: dict[str, TurnRef]) -> Question:
    kind = KINDS[q["category"]]
    evidence = frozenset(_places(q.get("evidence", []), places))
    return Question(name, q["question"], str(q.get("answer", "")), kind, evidence, abstains=kind == "adversarial")


def _places(where: Any, places: dict[str, TurnRef]) -> list[TurnRef]:
    """Turn ids, as well formed as the file has them: a list, or several in one string."""
    names = [f"D{int(s)}:{int(t)}" for s, t in _DIA.findall(str(where))]
    return [places[name] for name in names if name in places]
