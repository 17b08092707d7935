"""From found things to answers and their scores."""

from datetime import UTC, datetime

import pytest

from benchmarks.answer_metrics import bundled_model
from benchmarks.answering import Reply, answered, prompt_for, score_answers
from benchmarks.datasets import Conversation, Question, Sitting
from benchmarks.methods import Found
from rmm_core import Attachment, LLMError, Message, TurnRef
from rmm_core.testing import ScriptedLLM

MAY, JUNE = datetime(2024, 5, 3, tzinfo=UTC), datetime(2024, 6, 14, tzinfo=UTC)
TALK = Conversation(
    "talk",
    (
        Sitting("s1", MAY, (Message("user", "I keep seven bees."), Message("agent", "Seven!"))),
        Sitting(
            "s2",
            JUNE,
            (
                Message("user", "My sister plays the cello.", attachments=(Attachment("image", "x.png", "a cello"),)),
                Message("agent", "Since when?"),
                Message("user", "Since 2019 [1].", speaker="Mara"),
            ),
        ),
    ),
    (),
    ("Mara M.", "Bot"),
)


def question(text="What does my sister play?", answer="The cello", **changes):
    return Question("q", text, answer, "plain", frozenset({TurnRef("s2", 0)}), **changes)


def found(*places, text=None):
    """What a method brings up: turns by (session, index), under their own lines or another text."""
    refs = tuple(TurnRef(*place) for place in places)
    return Found("\n".join(TALK.line(TALK.message(r)) for r in refs) if text is None else text, refs)


BEES, CELLO, SINCE = found(("s1", 0)), found(("s2", 0)), found(("s2", 2))


def words(prompt):
    return len(prompt.text.split())


def test_turns_are_shown_with_speaker_and_date():
    prompt = prompt_for(TALK, question(), [CELLO, BEES, SINCE], 2)
    assert (
        """\
<memories>
<memory number="1">
Original turns:
- Friday, 14 June 2024, Mara M.: My sister plays the cello. [image: a cello]
</memory>
<memory number="2">
Original turns:
- Friday, 3 May 2024, Mara M.: I keep seven bees.
</memory>
</memories>

Question: What does my sister play?
Answer:"""
        in prompt.text
    )
    assert [s.number for s in prompt.shown] == [1, 2]
    assert [t.ref for s in prompt.shown for t in s.turns] == [TurnRef("s2", 0), TurnRef("s1", 0)]


def test_a_summary_stands_above_its_turns_in_order_of_time():
    topic = found(("s2", 2), ("s2", 0), ("s1", 1), text="Mara's sister is a cellist.")
    prompt = prompt_for(TALK, question(), [topic, found(text="Mara likes honey.")], 5)
    assert (
        """\
<memory number="1">
Summary: Mara's sister is a cellist.
Original turns:
- Friday, 3 May 2024, Bot: Seven!
- Friday, 14 June 2024, Mara M.: My sister plays the cello. [image: a cello]
- Friday, 14 June 2024, Mara: Since 2019 \N{MATHEMATICAL LEFT WHITE SQUARE BRACKET}1].
</memory>
<memory number="2">
Summary: Mara likes honey.
</memory>"""
        in prompt.text
    )


@pytest.mark.parametrize("text", [None, ""])
def test_a_session_is_shown_once(text):
    prompt = prompt_for(TALK, question(), [found(("s2", 0), ("s2", 1), ("s2", 2), text=text)], 5)
    (shown,) = prompt.shown
    assert len(shown.turns) == 3
    assert prompt.text.count("My sister plays the cello.") == 1
    assert "Summary:" not in prompt.text.partition("Now the real one.")[2]


def test_the_date_of_asking_and_the_session_so_far():
    history = (Message("user", "Hello."), Message("agent", "Hi [2].", speaker="Ann"))
    asked = question(asked_at=datetime(2024, 7, 1, tzinfo=UTC), history=history)
    for things in ([CELLO], []):
        text = prompt_for(TALK, asked, things, 5).text
        assert (
            "Earlier in this session:\nMara M.: Hello.\nAnn: Hi \N{MATHEMATICAL LEFT WHITE SQUARE BRACKET}2].\n" in text
        )
        assert "Question: (Today is Monday, 1 July 2024.) What does my sister play?" in text
    assert "Earlier" not in prompt_for(TALK, question(), [], 5).text


def test_without_memories_the_prompt_speaks_of_none():
    prompt = prompt_for(TALK, question(), [], 5)
    assert prompt.shown == ()
    assert "What does my sister play?" in prompt.text
    assert "do not have that information" in prompt.text
    assert "<memor" not in prompt.text
    assert "square brackets" not in prompt.text


LONG = Conversation(
    "long",
    tuple(
        Sitting(
            f"s{n}", datetime(2024, 1, n, tzinfo=UTC), tuple(Message("user", f"fact{n}x{i} " * 10) for i in range(5))
        )
        for n in (1, 2, 3)
    ),
    (),
)


def whole(*names, text=""):
    return Found(text, tuple(TurnRef(name, i) for name in names for i in range(5)))


def shown_refs(prompt):
    return [[(t.session_id, t.index) for t in s.turns] for s in prompt.shown]


def test_what_is_over_the_budget_is_cut_lowest_and_oldest_first():
    sessions = [whole("s2"), whole("s1"), whole("s3")]
    everything = prompt_for(LONG, question(), sessions, 3)
    assert shown_refs(everything) == [[(s, i) for i in range(5)] for s in ("s2", "s1", "s3")]
    sizes = []
    for budget in range(words(everything), 260, -20):
        cut = prompt_for(LONG, question(), sessions, 3, budget_words=budget)
        assert words(cut) <= budget
        assert [s.number for s in cut.shown] == list(range(1, len(cut.shown) + 1))
        kept = shown_refs(cut)
        for session, turns in zip(("s2", "s1", "s3"), kept, strict=False):  # what is left of the last may be nothing
            assert turns == [(session, i) for i in range(5 - len(turns), 5)]
        assert all(len(turns) == 5 for turns in kept[:-1])
        sizes.append(sum(map(len, kept)))
    assert sizes[0] == 15
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 5


def test_a_whole_history_loses_its_beginning():
    full = prompt_for(LONG, question(), [whole("s1", "s2", "s3")], 5)
    cut = prompt_for(LONG, question(), [whole("s1", "s2", "s3")], 5, budget_words=words(full) - 1)
    assert shown_refs(cut) == [shown_refs(full)[0][1:]]
    assert "fact1x0" not in cut.text
    assert "fact1x1" in cut.text
    assert "fact3x4" in cut.text


def test_a_summary_outlasts_its_turns():
    things = [whole("s1", text="They list facts."), whole("s2", text="They list more.")]
    full = prompt_for(LONG, question(), things, 5)
    sizes = set()
    for budget in range(words(full), 255, -2):
        cut = prompt_for(LONG, question(), things, 5, budget_words=budget)
        sizes.add(tuple(len(s.turns) for s in cut.shown))
        assert cut.text.count("They list more.") == (len(cut.shown) == 2)
    assert {(5, 5), (5, 1), (5, 0), (5,), (4,)} <= sizes


def test_a_pasted_document_hides_nothing_else():
    pasted = Conversation("p", (Sitting("s", MAY, (Message("user", "words " * 5000), Message("user", "short"))),), ())
    document, short = (Found("", (TurnRef("s", i),)) for i in (0, 1))
    prompt = prompt_for(pasted, question(), [document, short], 5, budget_words=1200)
    assert words(prompt) <= 1200
    assert prompt.text.count("words words") > 100
    assert "[...]" in prompt.text
    assert [len(s.turns) for s in prompt.shown] == [1, 1]


def test_a_budget_below_the_rules_says_so():
    with pytest.raises(ValueError, match=r"budget_words is 50, and the prompt has \d+ words .* greater budget"):
        prompt_for(TALK, question(), [CELLO], 5, budget_words=50)


def test_a_reply_is_read():
    llm = ScriptedLLM("\nShe plays the cello [1, 3]. \n")
    reply = answered(llm, TALK, question(), [CELLO, BEES, SINCE], 3)
    assert (reply.text, reply.cited, reply.status) == ("She plays the cello.", (1, 3), "cited")
    assert reply.words_answer == 4
    assert reply.shown == tuple(frozenset({TurnRef(*place)}) for place in (("s2", 0), ("s1", 0), ("s2", 2)))
    assert llm.history == [prompt_for(TALK, question(), [CELLO, BEES, SINCE], 3).text]
    assert reply.words_prompt == len(llm.history[0].split())


def test_a_reply_without_memories_cites_none():
    reply = answered(ScriptedLLM("I do not know [NO_CITE]."), TALK, question(), [], 3)
    assert (reply.text, reply.cited, reply.status, reply.shown) == ("I do not know.", (), "none", ())


def test_what_was_not_shown_is_not_cited():
    reply = answered(ScriptedLLM("The cello [1, 3]."), TALK, question(), [CELLO, BEES, SINCE], 2)
    assert (reply.text, reply.cited, reply.status) == ("The cello.", (1,), "malformed")


def test_a_reply_tells_which_turns_were_cut():
    full = prompt_for(LONG, question(), [whole("s1")], 5)
    reply = answered(ScriptedLLM("Facts [1]."), LONG, question(), [whole("s1")], 5, budget_words=words(full) - 1)
    assert reply.shown == (frozenset(TurnRef("s1", i) for i in range(1, 5)),)


def test_a_model_that_fails_is_not_hidden():
    with pytest.raises(LLMError, match="busy"):
        answered(ScriptedLLM(LLMError("busy")), TALK, question(), [CELLO], 5)


def reply(text):
    return Reply(text, (), "silent", (), 400, len(text.split()))


def test_answers_are_scored():
    judge = ScriptedLLM("Yes", "hm", "No")
    unknown = question("When was I born?", "That was never said.", abstains=True)
    rows = [
        (TALK, question(), reply("the cello")),
        (TALK, question(), reply("A violin.")),
        (TALK, question(), reply("")),
        (TALK, unknown, reply("I do not have that information.")),
    ]
    right, wrong, empty, open_ = score_answers(rows, bert=bundled_model(), judge=judge)
    assert (right["em"], right["f1"], right["judge"], right["contains"]) == (1, 1, True, True)
    assert right["bert"] == pytest.approx(1, abs=1e-4)
    assert right["meteor"] > wrong["meteor"]
    assert right["bert"] > wrong["bert"] > empty["bert"] == 0
    assert (wrong["em"], wrong["f1"], wrong["judge"], wrong["contains"]) == (0, 0, None, False)
    assert (empty["judge"], empty["contains"], empty["words_answer"]) == (False, False, 0)
    assert (open_["judge"], open_["contains"]) == (False, True)
    assert (right["words_prompt"], right["words_answer"]) == (400, 2)
    assert len(judge.history) == 3  # nobody judges an empty answer
    assert "the answer is not known" in judge.history[2]
    assert "the answer is not known" not in judge.history[0]


def test_open_ended_replies_are_judged_by_their_fit():
    judge = ScriptedLLM("Yes")
    asked = question("Any pets?", "Two dogs.", history=(Message("user", "Hello."),))
    (score,) = score_answers([(TALK, asked, reply("Bees."))], bert=bundled_model(), judge=judge, open_ended=True)
    assert score["judge"] is True
    (prompt,) = judge.history
    assert prompt.index("Mara M.: Hello.") < prompt.index("Any pets?") < prompt.index("Two dogs.")
    assert "agrees in substance" in prompt


def test_without_a_judge_there_is_no_verdict():
    (score,) = score_answers([(TALK, question(), reply("A cello"))], bert=bundled_model())
    assert score["judge"] is None
    assert score["contains"] is True
    assert score_answers([], bert=bundled_model()) == []
