"""Overlap, agreement and citations: by hand."""

import pytest

from benchmarks.answer_metrics import (
    PRF,
    bert_scores,
    bundled_model,
    citation_quality,
    exact_match,
    f1,
    kappa,
    meteor,
    meteor_variant,
)
from tests.fresh import python

GOLD = "Mara bought a red sofa in Vienna last week."
PARAPHRASE = "Last week, Mara was buying a red sofa in Vienna."
UNRELATED = "Nobody can play chess at night."


@pytest.mark.parametrize(
    ("answer", "gold", "exact", "overlap"),
    [
        ("The Cello!", "a cello", 1, 1),
        ("in Vienna", "Vienna", 0, 2 / 3),
        ("Vienna Vienna", "Vienna", 0, 2 / 3),  # a word counts as often as both have it
        ("red sofa and lamp", "red lamp of brass", 0, 0.5),
        ("don\N{RIGHT SINGLE QUOTATION MARK}t", "don't", 1, 1),
        ("theatre", "atre", 0, 0),  # articles are words of their own
        ("cello", "violin", 0, 0),
        ("", "violin", 0, 0),
        ("the", "", 1, 1),
    ],
)
def test_words_are_compared_as_squad_does(answer, gold, exact, overlap):
    assert exact_match(answer, gold) == exact
    assert f1(answer, gold) == pytest.approx(overlap)
    assert f1(gold, answer) == pytest.approx(overlap)


def test_meteor_orders_answers():
    assert meteor(GOLD, GOLD) > meteor(PARAPHRASE, GOLD) > meteor("Mara bought it.", GOLD) > meteor(UNRELATED, GOLD)
    assert meteor(UNRELATED, GOLD) == meteor("", GOLD) == meteor(GOLD, "") == 0


def test_meteor_by_hand():
    # two words match in two pieces: precision 2/2, recall 2/3, and half of the penalty for being scattered
    mean = 1 * (2 / 3) / (0.9 * 1 + 0.1 * (2 / 3))
    assert meteor("red, lamps", "red brass lamp") == pytest.approx(mean * (1 - 0.5))
    assert meteor("Vienna", "vienna.") == 0.5


SYNSET = "00000000 00 n 02 sofa 0 couch 0 000 | a long seat\n"


def wordnet(folder):
    """A WordNet that knows one pair of synonyms."""
    folder.mkdir(parents=True)
    kinds = ("adj", "adv", "noun", "verb")
    names = [f"{part}.{kind}" for kind in kinds for part in ("index", "data")] + [f"{kind}.exc" for kind in kinds]
    for name in [*names, "index.sense", "cntlist.rev"]:
        (folder / name).write_text("")
    (folder / "lexnames").write_text("00\tnoun.artifact\t1\n")
    (folder / "data.noun").write_text(SYNSET)
    (folder / "index.noun").write_text("".join(f"{word} n 1 0 1 0 00000000\n" for word in ("couch", "sofa")))


@pytest.mark.parametrize(("found", "name", "score"), [(True, "METEOR", 0.5), (False, "METEOR (no synonyms)", 0.0)])
def test_synonyms_where_nltk_finds_them(tmp_path, found, name, score):
    if found:
        wordnet(tmp_path / "corpora" / "wordnet")
    said = python(f"""
import nltk
nltk.data.path[:] = [{str(tmp_path)!r}]
from benchmarks.answer_metrics import meteor, meteor_variant
print(meteor_variant(), meteor("couch", "sofa"), sep=": ")""")
    assert said == f"{name}: {score}"


def test_the_variant_is_that_of_this_machine():
    assert meteor_variant() == ("METEOR" if meteor("couch", "sofa") else "METEOR (no synonyms)")


def test_bert_scores():
    answers = [GOLD, PARAPHRASE, UNRELATED, "", GOLD]
    same, close, far, *empty = bert_scores(answers, [GOLD, GOLD, GOLD, GOLD, " "], *bundled_model())
    assert same == pytest.approx(1, abs=1e-4)
    assert same > close > far + 0.2
    assert empty == [0, 0]


def test_bert_scores_of_nothing_load_no_model():
    assert bert_scores(["", " "], ["a", "b"], "no such model") == [0, 0]
    with pytest.raises(ValueError, match="say which: layers=6"):
        bert_scores(["a"], ["b"], "no such model")
    with pytest.raises(ValueError, match="got 1 and 2"):
        bert_scores(["a"], ["b", "c"], "no such model")


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        # 20 and 15 of 50 agreed on; yes from 25 and 30: chance 0.5, (0.7 - 0.5) / 0.5
        ([True] * 25 + [False] * 25, [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15, 0.4),
        ([True, False], [False, True], -1),
        ([True, True], [True, False], 0),
        ([True, True], [True, True], 1),
        ([False], [False], 1),
        ([False, False], [True, True], 0),
    ],
)
def test_kappa(a, b, expected):
    assert kappa(a, b) == pytest.approx(expected)


def test_kappa_needs_the_same_things_judged():
    with pytest.raises(ValueError, match="got 1 and 0"):
        kappa([True], [])
    with pytest.raises(ValueError, match="something that both"):
        kappa([], [])


def test_citations_by_hand():
    found = citation_quality([([True, False, False, False], (1, 2)), ([], ()), ([True, False], ())])
    assert found.useful == PRF(1 / 2, 1 / 2, 1 / 2, 2)
    assert found.useless == PRF(3 / 4, 3 / 4, 3 / 4, 4)
    assert found.overall.precision == pytest.approx((2 * 1 / 2 + 4 * 3 / 4) / 6)
    assert found.overall.support == 6

    found = citation_quality([([True, True, False], (2, 3)), ([False], (1,)), ([True], (1,))])
    useful = found.useful  # cited are two useful and two others; one useful is missed
    assert (useful.precision, useful.recall, useful.support) == pytest.approx((2 / 4, 2 / 3, 3))
    assert useful.f1 == pytest.approx(4 / 7)
    assert found.useless == PRF(0, 0, 0, 2)
    assert found.overall.recall == pytest.approx((3 * 2 / 3 + 2 * 0) / 5)


def test_citations_of_one_kind_alone():
    found = citation_quality([([True], (1,))])
    assert (found.useful, found.useless) == (PRF(1, 1, 1, 1), PRF(0, 0, 0, 0))
    assert found.overall == PRF(1, 1, 1, 1)
    with pytest.raises(ValueError, match="shown memories"):
        citation_quality([([], ())])
