"""The claims of the paper (and of this package) that are put to the test, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from icrl_agent.eval.reproduce import (
    context_length,
    depth,
    emergence,
    linear_attention,
    neu,
    phase,
    shipped,
    special_cases,
    theorem,
)
from icrl_agent.eval.reproduce.claim import Outcome

__all__ = ["CLAIMS", "ClaimSpec", "chosen_claims"]


@dataclass(frozen=True)
class ClaimSpec:
    """A claim and how it is tested."""

    id: str
    title: str
    statement: str
    test: Callable[[bool, Path], Outcome]
    """(quick, a folder for what takes long and can be resumed) -> outcome."""


def _in_memory(test: Callable[[bool], Outcome]) -> Callable[[bool, Path], Outcome]:
    return lambda quick, _folder: test(quick)


_ALL = (
    ClaimSpec(
        "theorem",
        "Theorem 1 and Lemma 1",
        "Every layer of the transformer is one step of weighted softmax TD, in every column; the dual-head layer and"
        " the single head with the temporal shift module are the same map.",
        _in_memory(theorem.claim),
    ),
    ClaimSpec(
        "special-cases",
        "Special cases",
        "Weighted softmax TD is tabular batch TD for sharp one-hot features, TD with a kernel smoother for g = log k,"
        " and linear batch TD without the normaliser.",
        _in_memory(special_cases.claim),
    ),
    ClaimSpec(
        "depth",
        "Theorem 2 in depth",
        "Under Assumption 5.1 the sup-norm error shrinks by at least the factor 1 - C per layer until the floor that"
        " the context sets; on any context a layer contracts by 2 (1 - min diag M_n) + gamma at most.",
        _in_memory(depth.claim),
    ),
    ClaimSpec(
        "context-length",
        "Theorem 2 in context length",
        "At infinite depth the sup-norm error falls as n^(-1/2).",
        _in_memory(context_length.claim),
    ),
    ClaimSpec(
        "phase",
        "Beyond the assumption",
        "The layers converge exactly where the spectral radius of the TD errors' map is below 1, far beyond Assumption"
        " 5.1, and diverge where it is above.",
        _in_memory(phase.claim),
    ),
    ClaimSpec(
        "emergence",
        "Emergence",
        "TD pretraining on random Boyan chains makes attention diagonal, A a multiple of the identity, and gives V's"
        " free entries the signs (+, +, -).",
        emergence.claim,
    ),
    ClaimSpec(
        "neu",
        "Theorem 3",
        "The norm of the expected update goes to its smallest value, 0, at the theorem's weights as n, then L, grow;"
        " other ratios of V's entries, random and early weights are worse; rescaling A or all of V leaves the limit, so"
        " that the minimiser is not unique.",
        _in_memory(neu.claim),
    ),
    ClaimSpec(
        "linear-attention",
        "Softmax against linear attention",
        "On random Boyan chains with random features, the softmax transformer's error is below that of linear attention"
        " with its batch-TD weights, at every depth and length; where v is made linear in four features, linear"
        " attention is better (shown beside).",
        _in_memory(linear_attention.claim),
    ),
    ClaimSpec(
        "shipped",
        "Shipped weights and comparison",
        "Fresh tasks give the error ratios of the committed tables: those of the shipped weights, and of the comparison"
        " with classical estimators and Stable-Baselines3 critics.",
        shipped.claim,
    ),
)
#: Claims by id.
CLAIMS: dict[str, ClaimSpec] = {spec.id: spec for spec in _ALL}


def chosen_claims(only: Sequence[str]) -> list[str]:
    """Ids in the report's order; all if none is named.

    Raises:
        ValueError: for an unknown id; it lists the known ones.

    >>> chosen_claims(["depth", "theorem"])
    ['theorem', 'depth']
    """
    unknown = [name for name in only if name not in CLAIMS]
    if unknown:
        raise ValueError(f"no claim is called {unknown[0]!r}; claims: {', '.join(CLAIMS)}")
    return [name for name in CLAIMS if not only or name in only]
