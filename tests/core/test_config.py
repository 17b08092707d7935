"""Settings are checked where they are given."""

import copy
import pickle
from dataclasses import replace

import pytest

from rmm_core.config import RMMConfig
from rmm_core.errors import ConfigError
from rmm_core.features import FeatureWeights


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"topm": 3}, "no setting 'topm'; did you mean 'top_m'"),
        ({"colour": 3}, "no setting 'colour'; known: anchor, attribution"),
        ({"top_k": 0}, "top_k must be a whole number of at least 1; got 0"),
        ({"top_k": 2.5}, "top_k"),
        ({"top_k": True}, "top_k"),
        ({"top_k": "many"}, "top_k"),
        ({"top_k": 3}, "top_m .* must not be above top_k"),
        ({"temperature": 0.0}, "temperature must be a finite number above 0"),
        ({"learning_rate": -1}, "learning_rate must be a finite number of at least 0"),
        ({"learning_rate": "fast"}, "learning_rate"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"anchor": 1.0}, "anchor must be at least 0 and below 1"),
        ({"forget": 1.0}, "forget must be at least 0 and below 1"),
        ({"duels": 1.1}, "duels must be between 0 and 1"),
        ({"ridge": 0.0}, "ridge must be a finite number above 0"),
        ({"serving": "gready"}, "serving is one of 'greedy', 'sampled'"),
        ({"serving": ["greedy"]}, "serving is one of"),
        ({"estimator": "ppo"}, "estimator is one of"),
        ({"speakers": ()}, "speakers"),
        ({"speakers": ("user", "system")}, "speakers"),
        ({"piece_turns": 2, "piece_overlap": 2}, "piece_overlap"),
        ({"piece_turns": 0}, "piece_turns"),
        ({"prompt_tokens": 0}, "prompt_tokens must be None or"),
        ({"own_weight": 0.3}, "no setting 'own_weight'"),
        ({"prior": FeatureWeights(own=float("inf"))}, "prior is FeatureWeights"),
        ({"prior": {"own": 1.0}}, "prior is FeatureWeights"),
        ({"idle_minutes": float("inf")}, "idle_minutes"),
        ({"seed": -1}, "seed"),
        ({"seed": "x"}, "seed"),
        ({"baseline": "x"}, "baseline"),
        ({"features": "no"}, "features is True or False"),
        ({"speakers": 5}, "speakers is a tuple"),
        ({"floor": "high"}, "floor must be None or a finite number"),
    ],
)
def test_what_cannot_work_is_refused(settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        RMMConfig(**settings)


def test_zero_is_a_value_and_none_unsets():
    config = RMMConfig(floor=0.0, prompt_tokens=None, piece_turns=None, session_turns=None, learning_rate=0)
    assert config.floor == 0.0
    assert config.prompt_tokens is None


def test_the_papers_settings():
    paper = RMMConfig.paper()
    assert (paper.top_k, paper.top_m, paper.batch_size) == (20, 5, 4)
    assert (paper.temperature, paper.baseline, paper.learning_rate) == (0.5, 0.5, 1e-3)
    assert (paper.serving, paper.estimator, paper.logit_scale) == ("sampled", "reinforce", 1.0)
    assert not paper.features
    assert not paper.unfiled
    assert not paper.guard
    assert RMMConfig.paper(top_k=50, top_m=10).top_k == 50
    with pytest.raises(ConfigError, match="topm"):
        RMMConfig.paper(topm=1)


def test_it_is_a_value():
    config = RMMConfig(top_m=3)
    assert replace(config, top_m=5) == RMMConfig()
    assert copy.deepcopy(config) == pickle.loads(pickle.dumps(config)) == config
    assert hash(config) == hash(RMMConfig(top_m=3))
    assert config.to_dict()["top_m"] == 3
    with pytest.raises(AttributeError):
        config.top_m = 1
