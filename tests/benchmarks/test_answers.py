"""The command that answers: real citations teach, scores are kept, words are not; its tables by hand."""

import json
from contextlib import contextmanager

import pytest

from benchmarks import answering, answers, options, run
from benchmarks.answer_records import AnswerRow, AnswerRun
from benchmarks.answer_tables import of_answers
from benchmarks.answering import Reply
from benchmarks.methods import Found
from benchmarks.methods.rmm import RMM
from rmm_core import TurnRef
from rmm_core.testing import HashEmbedder, ScriptedLLM
from tests.benchmarks.worlds import conversation

SESSIONS = [
    {
        "at": "2024-01-05",
        "messages": [
            ["user", "I keep seven bees in Lisbon."],
            ["agent", "How lovely!"],
            ["user", "My sister Ida plays the cello."],
        ],
    },
    {"at": "2024-02-05", "messages": [["user", "The bees swarmed in May."], ["agent", "Oh no."]]},
]
LINES = (
    {"question": "Who plays the cello?", "answer": "Ida", "evidence": [[0, 2]], "sessions": SESSIONS},
    {"question": "When did the bees swarm?", "answer": "in May", "evidence": [[1, 0]]},
    {"question": "Where are the bees?", "answer": "Lisbon", "evidence": [[0, 0]]},
    {"question": "Why bees?", "evidence": [[0, 0]]},
    {"question": "What is new?", "answer": "Nothing"},
)


@pytest.fixture
def llm():
    """Says what a test lets it say."""
    return ScriptedLLM()


@pytest.fixture
def command(tmp_path, monkeypatch, llm):
    """The command on a little file of our own; returns the runs by the names of their files."""

    @contextmanager
    def model(choice, *, model, gguf):
        yield None if choice == "none" else llm

    monkeypatch.setattr(run, "bundled_embedder", HashEmbedder)
    monkeypatch.setattr(options, "language_model", model)
    path = tmp_path / "my.jsonl"
    folder = tmp_path / "results" / "jsonl" / "answers"

    def call(*more, lines=LINES, stub=True):
        if stub:
            monkeypatch.setattr(answering, "bert_scores", lambda answers, golds, *model: [0.5] * len(golds))
        path.write_text("".join(json.dumps({"conversation": "m"} | line) + "\n" for line in lines))
        folders = ("--results", str(tmp_path / "results"), "--cache", str(tmp_path / "cache"))
        model = () if "--llm" in more else ("--llm", "http://x/v1", "--model", "tiny")
        answers.main(["--dataset", "jsonl", "--data", str(path), *folders, *model, *more])
        return {p.name: AnswerRun.load(p) for p in sorted(folder.glob("*.json"))}

    return call


def says(llm, answer, verdict="Yes"):
    """Let the model answer so, and judge so."""
    llm.enqueue(*[lambda prompt: verdict if prompt.endswith("Verdict:") else answer] * 100)


def test_answers_to_a_users_own_data(command, tmp_path, llm):
    says(llm, "Ida plays it [1].")
    runs = command("--methods", "no-history,rag-turn,rmm", stub=False)
    assert list(runs) == ["no-history.json", "rag-turn.json", "rmm.extractive.json"]
    about = runs["rmm.extractive.json"].about
    assert (about["questions"], about["of"], about["m"], about["seed"]) == (3, 3, 5, 0)
    assert (about["llm"], about["judge"]) == ("tiny, temperature 0", "tiny, temperature 0")
    assert about["citations"] == {"simulated": False}
    assert about["bert"] == "all-MiniLM-L6-v2, layer 6"
    assert runs["rag-turn.json"].made["versions"]["torch"]
    rows = {row.question: row for row in runs["rag-turn.json"].rows}
    assert sorted(rows) == ["m 1", "m 2", "m 3"]
    cello = rows["m 1"]
    assert (cello.status, cello.cited, cello.shown, cello.words_answer) == ("cited", (1,), 5, 3)
    assert cello.useful == (True, False, False, False, False)
    assert (cello.em, cello.f1, cello.judge, cello.contains, cello.learned) == (0, 0.5, True, True, False)
    assert 0.3 < cello.bert < 1
    assert rows["m 2"].contains is False
    assert runs["no-history.json"].rows[0].useful == ()
    assert all(row.status == "malformed" for row in runs["no-history.json"].rows)  # nothing has the number 1


def test_no_text_is_in_the_results(command, tmp_path, llm):
    says(llm, "Ida plays it [1].")
    command("--methods", "no-history,rag-turn,rmm")
    held = "".join(p.read_text() for p in (tmp_path / "results").rglob("*") if p.is_file())
    for words in ("Ida", "plays", "cello", "bees", "Lisbon", "May", "Nothing"):
        assert words not in held
    assert str(tmp_path) not in held


@pytest.mark.parametrize(
    ("reply", "learned"),
    [
        ("It is Ida [2].", (2,)),
        ("I do not know [NO_CITE].", ()),
        ("It is Ida [9].", None),
        ("It is Ida.", None),
    ],
)
def test_the_citations_of_answers_teach(command, monkeypatch, llm, reply, learned):
    taught = []
    learn = RMM.learn
    monkeypatch.setattr(RMM, "learn", lambda self, cited: (taught.append(cited), learn(self, cited)))
    says(llm, reply)
    (found,) = command("--methods", "rmm").values()
    assert taught == ([] if learned is None else [learned] * 3)
    assert {row.learned for row in found.rows} == {learned is not None}


@pytest.mark.parametrize(
    ("status", "shown", "learns", "taught"),
    [
        ("cited", 2, True, True),
        ("none", 2, True, True),
        ("cited", 1, True, False),  # the second thing was cut
        ("none", 0, True, False),
        ("silent", 2, True, False),
        ("malformed", 2, True, False),
        ("cited", 2, False, False),
    ],
)
def test_what_was_cut_or_malformed_teaches_nothing(status, shown, learns, taught):
    class Pupil:
        lessons = ()

        def learn(self, cited):
            self.lessons += (cited,)

    pupil = Pupil()
    pupil.learns = learns
    things = [Found("a", (TurnRef("s", 0),)), Found("b", (TurnRef("s", 1),))]
    reply = Reply("x", (1,), status, tuple(f.covers for f in things[:shown]), 400, 1)
    assert answers.teach(pupil, things, reply) is taught
    assert pupil.lessons == (((1,),) if taught else ())


def test_what_was_answered_is_not_answered_again(command, tmp_path, llm, capsys):
    says(llm, "Ida [1].")
    command("--methods", "rag-turn")
    path = tmp_path / "results" / "jsonl" / "answers" / "rag-turn.json"
    kept, asked = path.read_text(), len(llm.history)
    assert asked == 6  # three answers, three verdicts
    command("--methods", "rag-turn")
    assert "run before" in capsys.readouterr().err
    assert path.read_text() == kept
    command("--methods", "rag-turn", "--seed", "1")
    assert "run before" not in capsys.readouterr().err
    assert AnswerRun.load(path).about["seed"] == 1
    assert len(llm.history) == asked  # the replies were kept
    command("--methods", "rag-turn", "--seed", "1", "--model", "other", "--llm", "http://x/v1")
    assert len(llm.history) == 2 * asked


def test_answers_can_be_read_elsewhere(command, tmp_path, llm):
    says(llm, "Ida plays it [1].")
    command("--methods", "rag-turn")
    asked = len(llm.history)
    command("--methods", "rag-turn,no-history", "--questions", "3", "--texts", str(tmp_path / "read" / "texts.txt"))
    text = (tmp_path / "read" / "texts.txt").read_text()
    assert "rag-turn, m 1 (question)\nQ: Who plays the cello?\nright: Ida\nanswer: Ida plays it. [1]\n" in text
    assert text.count("judge: Yes, rule: Yes, METEOR: ") == 2
    assert text.count("no-history, m") == 3
    assert len(llm.history) == asked + 3  # of no-history alone, whose answers are judged already


def test_quotes_stand_in_for_a_language_model(command, tmp_path, llm):
    runs = command("--llm", "none", "--methods", "no-history,rag-turn,rmm", "--texts", str(tmp_path / "texts.txt"))
    assert llm.history == []
    rows = {row.question: row for row in runs["rmm.extractive.json"].rows}
    assert 'User said: "My sister Ida plays the cello."' in (tmp_path / "texts.txt").read_text()
    cello = rows["m 1"]
    assert (cello.status, cello.judge, cello.contains, cello.learned) == ("cited", None, True, True)
    assert cello.useful[cello.cited[0] - 1]
    assert {row.status for row in runs["no-history.json"].rows} == {"none"}
    assert (runs["rag-turn.json"].about["llm"], runs["rag-turn.json"].about["judge"]) == (None, None)


def test_nobody_judges_unless_asked(command, llm):
    says(llm, "Ida [1].")
    (found,) = command("--methods", "rag-turn", "--no-judge").values()
    assert {row.judge for row in found.rows} == {None}
    assert found.about["judge"] is None
    assert not any(prompt.endswith("Verdict:") for prompt in llm.history)


def test_advice_is_judged_by_whether_it_fits(command, llm):
    says(llm, "Ida [1].")
    kind = "single-session-preference"
    (found,) = command("--methods", "rag-turn", lines=(LINES[0], LINES[1] | {"kind": kind})).values()
    assert {(row.kind, row.open_ended, row.judge) for row in found.rows} == {
        ("question", False, True),
        (kind, True, True),
    }
    (fit,) = [p for p in llm.history if "Does the reply to judge fit" in p]
    assert "When did the bees swarm?" in fit
    assert answers.open_ended("msc", conversation().questions[0])


def test_a_language_model_may_extract(command, llm):
    says(llm, "NO_TRAIT")
    assert list(command("--methods", "pr,rmm", "--topics", "llm")) == ["pr.llm.json", "rmm.llm.json"]
    assert any("extracted_memories" in prompt for prompt in llm.history)


def test_a_sample_is_spread_over_what_can_be_asked():
    talk = conversation()
    assert [q.id for _, q in answers.sampled([talk], 9)[0]] == ["q1", "q2"]  # of the third nothing was said
    talks = [conversation(f"c{i}") for i in range(4)]
    sample, count = answers.sampled(talks, 4)
    assert ([(c.name, q.id) for c, q in sample], count) == ([(f"c{i}", "q1") for i in range(4)], 8)
    with pytest.raises(ValueError, match="no question here has both an answer and evidence"):
        answers.sampled([conversation(questions=())], 9)


def test_only_the_conversations_that_are_asked_about_are_remembered(command, monkeypatch, llm):
    remembered = []
    remember = RMM.remember
    monkeypatch.setattr(
        RMM, "remember", lambda self, talks: (remembered.extend(t.name for t in talks), remember(self, talks))
    )
    lines = [LINES[0] | {"conversation": name} for name in "abcd"]
    runs = command("--llm", "none", "--methods", "rmm", "--questions", "2", lines=lines)
    assert remembered == ["a", "c"]
    assert [row.question for row in runs["rmm.extractive.json"].rows] in (["a 1", "c 3"], ["c 3", "a 1"])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--llm", "none", "--questions", "0"], "--questions is a number from 1; got 0"),
        (["--llm", "http://x/v1"], "--llm URL needs --model NAME"),
        (["--llm", "none", "--topics", "llm"], "--topics llm needs --llm URL"),
        (["--llm", "none", "--bert-layers", "3"], "--bert-layers needs --bert MODEL"),
        (["--llm", "none", "--methods", "ragturn"], "there is no method 'ragturn'"),
    ],
)
def test_mistakes_in_options_are_told(options, complaint, capsys):
    with pytest.raises(SystemExit, match="2"):
        answers.main(["--dataset", "msc", *options])
    assert complaint in capsys.readouterr().err


def test_another_file_is_no_answers(tmp_path):
    (tmp_path / "x.json").write_text('{"rows": [{}]}')
    with pytest.raises(ValueError, match="holds no answers of this benchmark"):
        AnswerRun.load(tmp_path / "x.json")


# -- tables

ABOUT = {
    "dataset": "jsonl",
    "questions": 2,
    "of": 1540,
    "llm": "tiny, temperature 0",
    "judge": "tiny, temperature 0",
    "meteor": "METEOR (no synonyms)",
    "bert": "mini, layer 6",
    "budget_words": 4000,
    "m": 5,
    "settings": {},
    "citations": {"simulated": False},
}


def row(question, **changes):
    values = {
        "kind": "one",
        "open_ended": False,
        "status": "cited",
        "cited": (1,),
        "shown": 3,
        "useful": (True, False, False),
        "learned": False,
        "em": 0.0,
        "f1": 0.25,
        "meteor": 0.2,
        "bert": 0.5,
        "judge": True,
        "contains": True,
        "words_prompt": 900,
        "words_answer": 10,
    }
    return AnswerRow(question=question, **(values | changes))


def saved(folder, method, *rows, **about):
    path = folder / about.get("dataset", "jsonl") / "answers" / f"{method}.{len(about)}.json"
    AnswerRun(method, ABOUT | about, rows, {}).save(path)
    assert AnswerRun.load(path) == AnswerRun(method, ABOUT | about, rows, {})


def test_tables_by_hand(tmp_path):
    saved(
        tmp_path,
        "no-history",
        *(row(q, meteor=0.0, judge=False, contains=False, cited=(), shown=0, useful=()) for q in "ab"),
    )
    saved(
        tmp_path,
        "rag-turn",
        row("a"),
        row("b", meteor=0.4, judge=False, f1=0.75, words_answer=20, cited=(1, 2), em=1.0),
    )
    saved(
        tmp_path,
        "rmm",
        row("a", meteor=0.6, cited=(), status="none", useful=(False, False, True)),
        row("b", meteor=0.8, judge=None, status="malformed"),
        topics="recorded",
    )
    text = of_answers(tmp_path, "jsonl")
    cited, answered = text.split("### 8. Answers")
    assert cited.startswith(
        "### 3. Citations\n\n2 questions, spread evenly over 1,540 that can be asked, answered by tiny, temperature 0; "
        "feedback is real"
    )
    # rag: 2 useful, both cited, and 1 of 4 others: precision 2/3, recall 1, F1 0.8; others 3/3, 3/4, 6/7
    assert (
        "| RAG: turns, dense | 6 | 66.7 / 100.0 / 80.0 | 100.0 / 75.0 / 85.7 | 88.9 / 83.3 / 83.8 | 2 / 0 / 0 / 0 |"
        in cited
    )
    # rmm: 1 of 2 useful cited, 0 of 4 others; precision 1, recall 1/2; others 4/5, 1
    assert "| RMM, our default, recorded topics | 6 | 100.0 / 50.0 / 66.7 | 80.0 / 100.0 / 88.9 |" in cited
    assert "| 0 / 1 / 0 / 1 |" in cited
    assert "No History" not in cited
    assert "| the paper | - | 89.4 / 91.1 / 90.2 | 87.2 / 84.6 / 85.9 | 87.6 / 85.8 / 86.7 | - |" in cited
    assert "2 questions, spread evenly" in answered
    assert "METEOR (no synonyms) | BERTScore | EM | F1 | judge: Yes | contains |" in answered
    assert "| RAG: turns, dense | 2 | 30.0 | 50.0 | 50.0 | 50.0 | 50.0 | 100.0 | 15 | 900 | - | - |" in answered
    assert (
        "| RMM, our default, recorded topics | 2 | 70.0 | 50.0 | 0.0 | 25.0 | 100.0 of 1 | 100.0 | 10 | 900 "
        "| +40.0 [+40.0, +40.0] | +0.0 [+0.0, +0.0] |" in answered
    )
    assert "| No History | 2 | 0.0 |" in answered
    # five verdicts: the rule says no of two, the judge of three; agreement 4/5, by chance 3/5 2/5 + 2/5 3/5
    assert "Cohen's kappa of judge and rule: 0.62, over 5 answers. In the paper: between people 0.82, judge" in answered
    assert "paper: METEOR" not in answered


def test_the_papers_figures_stand_beside_ours_where_they_are_of_the_same_data(tmp_path):
    chat = {"useful": None, "open_ended": True}
    for method in ("long-context", "rag-turn", "turn-max"):
        saved(tmp_path, method, row("a", **chat), row("b", **chat), dataset="msc")
    text = of_answers(tmp_path, "msc")
    assert "Citations" not in text  # nobody says what is useful
    assert "kappa" not in text  # the rule knows one right answer only
    assert "| paper: METEOR | paper: BERTScore | paper: Yes |" in text
    assert "| +0.0 [+0.0, +0.0] | +0.0 [+0.0, +0.0] | 14.8 | 31.9 | 25.4 |" in text
    assert "| - | - | 24.8 | 50.8 | - |" in text
    assert text.rstrip().endswith("| - | - | - |")


def test_what_was_answered_otherwise_stands_in_a_table_of_its_own(tmp_path):
    saved(tmp_path, "rag-turn", row("a"))
    saved(tmp_path, "rmm", row("a", judge=None), llm=None, judge=None, topics="recorded")
    text = of_answers(tmp_path, "jsonl")
    assert text.count("### 8. Answers") == 2
    _, quoted = text.split("answered by quotes of what was shown, without a language model", 1)
    assert "Nobody judged." in quoted
    assert "judge: Yes" not in quoted
    assert "against RAG" not in quoted


def test_without_answers_there_is_no_table(tmp_path):
    assert of_answers(tmp_path, "locomo") == ""
