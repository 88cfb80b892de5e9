"""The claims about single layers pass for the transformer, and fail for one with a mistake."""

from __future__ import annotations

import pytest
import torch

from icrl_agent.algorithms import weighted_softmax_td
from icrl_agent.eval.reproduce import special_cases, theorem

SMALL = theorem.Sizes(n_prompts=12, n_transitions=20, n_states=5, feature_dim=4, n_layers=6)


def swapped_sign(layer):
    def step(Z, A, V, *rest):
        return layer(Z, A, torch.cat([V[:, :-1], -V[:, -1:]], dim=1), *rest)

    return step


def wrong_axis(_layer):
    def step(Z, A, V, gamma, source_mask, continues):
        scores = Z.transpose(1, 2) @ A @ Z
        weights = torch.softmax(scores, dim=2) * source_mask[:, :, None]
        out = Z + (V @ Z).masked_fill(~source_mask[:, None, :], 0.0) @ weights
        out[:, -2, :-1] = gamma * continues[:, :-1] * out[:, -1, 1:]
        return out

    return step


def gamma_missing(layer):
    return lambda Z, A, V, gamma, *masks: layer(Z, A, V, torch.ones_like(gamma), *masks)


def not_shifted(layer):
    def step(Z, A, V, gamma, source_mask, continues):
        out = layer(Z, A, V, gamma, source_mask, continues)
        out[:, -2] = gamma * continues * out[:, -1]
        return out

    return step


def test_both_forms_pass(failures):
    assert failures(theorem.judge(theorem.measure(SMALL))) == []


@pytest.mark.parametrize("flaw", [swapped_sign, wrong_axis, gamma_missing, not_shifted])
def test_a_flaw_in_one_form_fails_in_both_precisions_and_the_lemma(failures, flaw):
    layers = {**theorem.LAYERS, "one head + TSM": flaw(theorem.LAYERS["one head + TSM"])}
    failed = failures(theorem.judge(theorem.measure(SMALL, layers)))
    assert len(failed) == 3
    assert all("TSM" in what or "Lemma" in what for what in failed)


SMALL_CASES = special_cases.Sizes(n_contexts=6, n_transitions=25, n_iterations=8)


def test_special_cases_pass(failures):
    assert failures(special_cases.judge(special_cases.measure(SMALL_CASES))) == []


def changed(**changes):
    """The reference with some of its arguments replaced, or removed."""

    def run(features, rewards, gamma, n_iterations, **options):
        kept = {name: value for name, value in options.items() if name not in changes}
        kept |= {name: value for name, value in changes.items() if value is not None and name != "gamma"}
        return weighted_softmax_td(features, rewards, changes.get("gamma", gamma), n_iterations, **kept)

    return run


def blunt(features, *arguments, **options):
    return weighted_softmax_td(0.2 * features, *arguments, **options)


@pytest.mark.parametrize(
    ("double", "caught"),
    [
        (changed(step_size=-0.5), ("tabular", "kernel", "linear")),
        (changed(gamma=0.999), ("tabular", "kernel", "linear")),
        (changed(continues=None), ("tabular", "kernel", "linear")),
        (changed(weighting=None), ("linear",)),
        (changed(score=None), ("kernel",)),
        (blunt, ("tabular", "kernel", "linear")),
    ],
    ids=["step against the error", "other gamma", "continues ignored", "with normaliser", "no kernel", "blunt"],
)
def test_special_cases_catch(failures, double, caught):
    failed = failures(special_cases.judge(special_cases.measure(SMALL_CASES, double)))
    assert {what.split()[0] for what in failed} == set(caught)
