"""Tasks drawn from a seed: random Boyan chains, the classic Boyan chain, Garnet decision processes.

Every function is pure: same arguments, same tables, in any process. A task's numbers come from a stream of their
own (kind and seed together), so that they share nothing with trajectories or features drawn from the same seed.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from icrl_agent.envs.solve import check_gamma
from icrl_agent.envs.tables import TabularMDP

__all__ = ["check_task_seed", "classic_boyan_chain", "garnet_mdp", "random_boyan_chain"]


def check_task_seed(task_seed: int) -> int:
    """Return a task's seed as a Python int.

    Raises:
        ValueError: if it is not an integer in 0 .. 2^63 - 1.
    """
    if isinstance(task_seed, bool) or not isinstance(task_seed, int | np.integer) or not 0 <= task_seed < 2**63:
        raise ValueError(f"task_seed must be a non-negative integer below 2^63, got {task_seed!r}")
    return int(task_seed)


def random_boyan_chain(
    n_states: int = 10, task_seed: int = 0, representable: int | None = None, representable_gamma: float = 0.9
) -> tuple[TabularMDP, NDArray[np.float64] | None]:
    """Draw a randomised Boyan chain, one action, which never ends.

    State i <= n-3 moves to i+1 with probability p_i ~ U(0.01, 0.99), else to i+2; state n-2 moves to n-1; state n-1
    moves to any state with probabilities U(0.01, 0.99), normalised, like the initial distribution. Rewards are
    U(-1, 1) per state. With ``representable=d`` features X ~ U(-1, 1)^(n x d) and weights w ~ N(0, I_d) are drawn,
    and the rewards become r = (I - gamma P) X w, so that v = X w exactly at ``representable_gamma``.
    Source: Xie et al. (2026), experiments; the chain is a randomised form of Boyan (1999).

    Args:
        n_states: number of states, at least 2.
        task_seed: which chain; non-negative.
        representable: number d of features in which v is linear; None = plain rewards.
        representable_gamma: discount factor of that v, in [0, 1].

    Returns:
        The chain, and the features (n_states, d) or None.

    Raises:
        ValueError: for an argument outside its range.

    >>> mdp, _ = random_boyan_chain(n_states=5, task_seed=3)
    >>> (mdp.transition[:, 0] > 0).astype(int)
    array([[0, 1, 1, 0, 0],
           [0, 0, 1, 1, 0],
           [0, 0, 0, 1, 1],
           [0, 0, 0, 0, 1],
           [1, 1, 1, 1, 1]])
    """
    n = _check_size("n_states", n_states, 2)
    rng = _task_generator("boyan", task_seed)
    transition = np.zeros((n, n))
    inner = np.arange(n - 2)
    one_step = rng.uniform(0.01, 0.99, n - 2)
    transition[inner, inner + 1] = one_step
    transition[inner, inner + 2] = 1.0 - one_step
    transition[n - 2, n - 1] = 1.0
    transition[n - 1] = _normalised(rng.uniform(0.01, 0.99, n))
    initial = _normalised(rng.uniform(0.01, 0.99, n))
    reward = rng.uniform(-1.0, 1.0, n)
    features = None
    gamma = check_gamma(representable_gamma)
    if representable is not None:
        features = rng.uniform(-1.0, 1.0, (n, _check_size("representable", representable, 1)))
        values = features @ rng.standard_normal(features.shape[1])
        reward = values - gamma * transition @ values
        features.setflags(write=False)
    return TabularMDP(transition, reward, initial), features


def classic_boyan_chain() -> TabularMDP:
    """Build the 13-state episodic chain of Boyan (1999); state i is i steps from the end.

    Episodes start in state 12. State i >= 2 moves to i-1 or i-2 with probability 1/2 each and reward -3, state 1
    moves to the terminal state 0 with reward -2. Undiscounted, v(i) = -2 i.

    >>> from icrl_agent.envs import state_values
    >>> state_values(classic_boyan_chain().policy_mrp(), gamma=1.0)[[12, 2, 1, 0]].round(9)
    array([-24.,  -4.,  -2.,   0.])
    """
    transition = np.zeros((13, 13))
    for state in range(2, 13):
        transition[state, [state - 1, state - 2]] = 0.5
    transition[1, 0] = 1.0
    reward = np.full(13, -3.0)
    reward[1] = -2.0
    terminal = np.arange(13) == 0
    return TabularMDP(transition, reward, np.eye(13)[12], terminal)


def garnet_mdp(n_states: int = 10, n_actions: int = 4, branching: int = 3, task_seed: int = 0) -> TabularMDP:
    """Draw a Garnet decision process, which never ends.

    Every (s, a) leads to ``branching`` different states; their probabilities are the gaps between sorted uniform
    cut points of [0, 1]. Rewards are U(-1, 1) per (s, a), the initial distribution is uniform.
    Source: Archibald, McKinnon and Thomas (1995); Bhatnagar et al. (2009).

    Args:
        n_states: number of states, at least 1.
        n_actions: number of actions, at least 1.
        branching: number of successors of a state-action pair, 1 to n_states.
        task_seed: which process; non-negative.

    Raises:
        ValueError: for an argument outside its range.

    >>> (garnet_mdp(n_states=6, n_actions=2, branching=3, task_seed=1).transition > 0).sum(axis=2).tolist()[0]
    [3, 3]
    """
    n, k = _check_size("n_states", n_states, 1), _check_size("n_actions", n_actions, 1)
    if _check_size("branching", branching, 1) > n:
        raise ValueError(f"branching must be at most n_states = {n}, got {branching}")
    rng = _task_generator("garnet", task_seed)
    successors = np.argsort(rng.random((n, k, n)), axis=2)[:, :, :branching]
    cuts = np.sort(rng.random((n, k, branching - 1)), axis=2)
    probabilities = np.diff(cuts, axis=2, prepend=0.0, append=1.0)
    transition = np.zeros((n, k, n))
    np.put_along_axis(transition, successors, probabilities, axis=2)
    return TabularMDP(transition, rng.uniform(-1.0, 1.0, (n, k)), np.full(n, 1.0 / n))


def _task_generator(kind: str, task_seed: int) -> np.random.Generator:
    return np.random.default_rng([check_task_seed(task_seed), zlib.crc32(kind.encode())])


def _normalised(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(weights / weights.sum())


def _check_size(name: str, value: int, minimum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}, got {value!r}")
    return int(value)
