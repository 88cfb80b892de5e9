"""Boyan chains as Gymnasium environments: randomised (BoyanChain-v0) and classic (BoyanChainClassic-v0)."""

from __future__ import annotations

from typing import ClassVar

from icrl_agent.envs.tables import TabularMDP
from icrl_agent.envs.tabular_env import TabularEnv
from icrl_agent.envs.tasks import classic_boyan_chain, random_boyan_chain

__all__ = ["BoyanChainClassicEnv", "BoyanChainEnv"]


class BoyanChainEnv(TabularEnv):
    """A randomised Boyan chain, drawn from ``task_seed``.

    ## Description
    A chain of ``n_states`` states with nothing to decide: the agent watches and predicts. State i <= n-3 moves one
    state ahead with its own probability p_i, else two; state n-2 moves to n-1; state n-1 jumps to any state, so the
    chain never ends. The same ``task_seed`` gives the same chain in every process.

    ## Action Space
    ``Discrete(1)``: the only action is 0.

    ## Observation Space
    ``Discrete(n_states)``: the index of the present state.

    ## Starting State
    Drawn from the chain's own initial distribution.

    ## Rewards
    r(s) ~ U(-1, 1), fixed per state, paid when s is left, plus Gaussian noise of standard deviation
    ``reward_noise``. With ``representable=d``, r = (I - gamma P) v where v is linear in d random features.

    ## Episode End
    Never. Ids carry no time limit: give ``max_episode_steps`` to ``gym.make`` for one.

    ## Exact solution
    v = (I - gamma P)^-1 r: ``state_values(env.unwrapped.mdp.policy_mrp(), gamma)``.

    ## Arguments
    - ``n_states=10``: number of states, at least 2.
    - ``task_seed=0``: which chain; None draws one per make and records it in ``env.unwrapped.task_seed``.
      ``reset(options={"task_seed": k})`` changes the chain.
    - ``reward_noise=0.0``: standard deviation of the reward noise.
    - ``representable=None``: number d of features in which v is exactly linear; they are
      ``env.unwrapped.representable_features``, shape (n_states, d).
    - ``representable_gamma=0.9``: the discount factor of that v.
    - ``render_mode=None``: "ansi" or "rgb_array".

    ## References
    Boyan (1999), "Least-squares temporal difference learning"; Xie et al. (2026), arXiv:2605.07333.

    ## Version History
    - v0: initial version.

    >>> import gymnasium as gym, icrl_agent
    >>> env = gym.make("BoyanChain-v0", task_seed=7)
    >>> env.observation_space, env.unwrapped.mdp.transition.shape
    (Discrete(10), (10, 1, 10))
    """

    def __init__(
        self,
        n_states: int = 10,
        task_seed: int | None = 0,
        reward_noise: float = 0.0,
        representable: int | None = None,
        representable_gamma: float = 0.9,
        render_mode: str | None = None,
    ) -> None:
        self._n_states, self._representable, self._representable_gamma = n_states, representable, representable_gamma
        super().__init__(task_seed=task_seed, reward_noise=reward_noise, render_mode=render_mode)

    def _make_task(self, task_seed: int) -> TabularMDP:
        mdp, self.representable_features = random_boyan_chain(
            self._n_states, task_seed, self._representable, self._representable_gamma
        )
        return mdp


class BoyanChainClassicEnv(TabularEnv):
    """The 13-state episodic Boyan chain.

    ## Description
    A walk of 12 steps to the end, one or two at a time. Undiscounted values are exactly linear in the state.

    ## Action Space
    ``Discrete(1)``: the only action is 0.

    ## Observation Space
    ``Discrete(13)``: the number of states to the end, 12 at the start, 0 terminal.

    ## Starting State
    12.

    ## Rewards
    -3 for leaving a state i >= 2 (to i-1 or i-2, probability 1/2 each), -2 for leaving state 1 (to 0).

    ## Episode End
    Terminates in state 0. No time limit.

    ## Exact solution
    v(i) = -2 i at gamma 1; any gamma by ``state_values(env.unwrapped.mdp.policy_mrp(), gamma)``.

    ## Arguments
    - ``reward_noise=0.0``: standard deviation of Gaussian noise on the reward.
    - ``render_mode=None``: "ansi" or "rgb_array".

    ## References
    Boyan (1999), "Least-squares temporal difference learning".

    ## Version History
    - v0: initial version.
    """

    render_gamma: ClassVar[float] = 1.0

    def __init__(self, reward_noise: float = 0.0, render_mode: str | None = None) -> None:
        super().__init__(mdp=classic_boyan_chain(), reward_noise=reward_noise, render_mode=render_mode)
