"""The weights the package ships: they load without a network, say how they were made, and are good on unseen tasks."""

import json

import gymnasium as gym
import numpy as np
import pytest

import icrl_agent  # noqa: F401 - registers the environments
from icrl_agent import ICRLAgent
from icrl_agent.frozen import SHIPPED_WEIGHTS
from icrl_agent.metrics import geometric_mean
from icrl_agent.model import load_weights
from icrl_agent.train.config import PretrainConfig
from icrl_agent.train.presets import preset
from icrl_agent.train.validation import (
    Cell,
    classical_values,
    draw_contexts,
    transformer_values,
    weighted_errors,
)

NAMES = sorted(path.stem for path in SHIPPED_WEIGHTS.glob("*.safetensors"))


def test_universal_is_shipped():
    assert "universal" in NAMES
    agent = ICRLAgent.from_pretrained()
    assert agent.model.feature_dim == 32
    assert agent.model.shared


@pytest.mark.parametrize("name", NAMES)
def test_config_log_and_table_lie_beside_the_weights(name):
    config = PretrainConfig.from_dict(json.loads((SHIPPED_WEIGHTS / f"{name}.config.json").read_text()))
    assert config == preset(name)
    _, stored = load_weights(SHIPPED_WEIGHTS / f"{name}.safetensors")
    assert PretrainConfig.from_dict(stored["pretraining"]) == config
    assert len((SHIPPED_WEIGHTS / f"{name}.metrics.csv").read_text().splitlines()) > 100
    assert "| steps | gamma |" in (SHIPPED_WEIGHTS / f"{name}.md").read_text()
    assert sum(path.stat().st_size for path in SHIPPED_WEIGHTS.iterdir()) < 1_000_000


@pytest.mark.parametrize("name", NAMES)
def test_signs_are_those_of_the_theorem(name):
    agent = ICRLAgent.from_pretrained(name)
    reward, target, current = agent.model.value_entries().tolist()
    assert reward > 0
    assert target > 0
    assert current < 0
    diagonal = agent.model.attention_block().diagonal()
    off = agent.model.attention_block() - diagonal.diag()
    assert diagonal.mean() > 10 * off.abs().sum() / (32 * 31)


@pytest.mark.parametrize("context_length", [32, 128])
def test_as_good_as_certainty_equivalence_on_unseen_tasks(context_length):
    """Within 15 % of mean-filled certainty equivalence plus three standard errors; an untrained model is not."""
    contexts = draw_contexts(Cell("boyan", 10, 0.9, context_length), 256, 32, split="test", seed=77)
    rival = weighted_errors(classical_values(contexts, ridge=0.1)["ce_mean"], contexts)

    def check(values):
        mean, stderr = geometric_mean(weighted_errors(values, contexts) / rival)
        assert mean - 3 * stderr < 1.15

    check(transformer_values(ICRLAgent.from_pretrained().model, contexts))
    with pytest.raises(AssertionError):
        check(np.zeros_like(contexts.true_values))


def test_it_may_run_at_another_depth():
    env = gym.make("BoyanChain-v0", task_seed=4321)
    agent = ICRLAgent.from_pretrained()
    own = agent.evaluate(env, n_steps=300, seed=0)
    other = agent.evaluate(env, n_steps=300, seed=0, n_layers=100)
    assert own.n_layers == agent.model.n_layers
    assert other.n_layers == 100
    # A state left 10 times in 300 steps has at least a sixth of its own attention: 100 layers settle its value.
    seen = own.visits >= 10
    assert seen.sum() >= 5
    np.testing.assert_allclose(own.values[seen], other.values[seen], atol=0.05)
