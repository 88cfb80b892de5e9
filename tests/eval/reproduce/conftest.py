"""Layers with one mistake each, in the form the claims are tested on."""

from __future__ import annotations

import pytest
import torch

from icrl_agent.eval.reproduce.chains import theorem_layer


def swapped_sign(context, gamma):
    return theorem_layer(context, gamma, (1.0, 1.0, 1.0))


def wrong_axis(context, gamma):
    """Softmax over the queries: the weight of a source is divided by what all columns pay to it."""
    x, counts, reward_sum, successors = context
    exponentials = torch.exp(x @ x.transpose(1, 2))
    weights = exponentials / (counts[:, None, :] @ exponentials)
    T = torch.eye(x.shape[1]) + weights @ (gamma[:, None, None] * successors - torch.diag_embed(counts))
    return T, (weights @ reward_sum[..., None])[..., 0]


def gamma_missing(context, gamma):
    return theorem_layer(context, torch.ones_like(gamma))


def not_shifted(context, gamma):
    """The target memory holds gamma times the value of the state that is left."""
    return theorem_layer(context._replace(successors=torch.diag_embed(context.counts)), gamma)


@pytest.fixture
def flawed_layers():
    return {
        "swapped sign in V": swapped_sign,
        "softmax over the wrong axis": wrong_axis,
        "gamma missing in the shift": gamma_missing,
        "target not shifted": not_shifted,
    }


@pytest.fixture
def failures():
    """Texts of the checks that fail."""
    return lambda checks: [check.what for check in checks if not check.passed]
