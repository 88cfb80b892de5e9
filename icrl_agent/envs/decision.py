"""Environments with actions: random Garnet processes (RandomMDP-v0) and anybody's own tables (TabularMDP-v0)."""

from __future__ import annotations

from pathlib import Path

from numpy.typing import ArrayLike

from icrl_agent.envs.tables import TabularMDP
from icrl_agent.envs.tabular_env import TabularEnv
from icrl_agent.envs.tasks import garnet_mdp

__all__ = ["RandomMDPEnv", "TabularMDPEnv"]


class RandomMDPEnv(TabularEnv):
    """A random Garnet Markov decision process, drawn from ``task_seed``.

    ## Description
    Every state-action pair leads to ``branching`` random states with random probabilities. The same ``task_seed``
    gives the same process everywhere.

    ## Action Space
    ``Discrete(n_actions)``.

    ## Observation Space
    ``Discrete(n_states)``: the index of the present state.

    ## Starting State
    Uniform over the states.

    ## Rewards
    r(s, a) ~ U(-1, 1), fixed per pair, plus Gaussian noise of standard deviation ``reward_noise``.

    ## Episode End
    Never. Ids carry no time limit: give ``max_episode_steps`` to ``gym.make`` for one.

    ## Exact solution
    ``state_values(env.unwrapped.mdp.policy_mrp(policy), gamma)`` for a policy table (n_states, n_actions).

    ## Arguments
    - ``n_states=10``, ``n_actions=4``, ``branching=3``: sizes; branching is at most n_states.
    - ``task_seed=0``: which process; None draws one per make and records it in ``env.unwrapped.task_seed``.
      ``reset(options={"task_seed": k})`` changes the process.
    - ``reward_noise=0.0``: standard deviation of the reward noise.
    - ``render_mode=None``: "ansi" or "rgb_array".

    ## References
    Archibald, McKinnon and Thomas (1995), "On the generation of Markov decision processes".

    ## Version History
    - v0: initial version.
    """

    def __init__(
        self,
        n_states: int = 10,
        n_actions: int = 4,
        branching: int = 3,
        task_seed: int | None = 0,
        reward_noise: float = 0.0,
        render_mode: str | None = None,
    ) -> None:
        self._sizes = n_states, n_actions, branching
        super().__init__(task_seed=task_seed, reward_noise=reward_noise, render_mode=render_mode)

    def _make_task(self, task_seed: int) -> TabularMDP:
        return garnet_mdp(*self._sizes, task_seed)


class TabularMDPEnv(TabularEnv):
    """Anybody's own tables as an environment.

    ## Description
    Plays the Markov decision process that the caller gives as arrays or as an ``.npz`` file.

    ## Action Space
    ``Discrete(A)`` for a transition table of shape (S, A, S); ``Discrete(1)`` for (S, S).

    ## Observation Space
    ``Discrete(S)``: the index of the present state.

    ## Starting State
    Drawn from ``initial``.

    ## Rewards
    ``reward[s, a]`` (or ``reward[s]``), plus Gaussian noise of standard deviation ``reward_noise``.

    ## Episode End
    Terminates on entering a state whose ``terminal`` flag is set. No time limit.

    ## Exact solution
    ``state_values(env.unwrapped.mdp.policy_mrp(policy), gamma)``.

    ## Arguments
    - ``transition``: (S, A, S) or (S, S) array whose rows sum to 1, or the path of an ``.npz`` file that holds
      ``transition``, ``reward``, ``initial`` and, optionally, ``terminal`` (``TabularMDP.to_npz`` writes one).
    - ``reward``: (S, A) or (S,) array. ``initial``: (S,) distribution. ``terminal``: (S,) booleans or None.
    - ``reward_noise=0.0``: standard deviation of the reward noise.
    - ``render_mode=None``: "ansi" or "rgb_array".

    Bad tables raise a ValueError that names the table and the row.

    ## Version History
    - v0: initial version.

    >>> import gymnasium as gym, icrl_agent
    >>> env = gym.make("TabularMDP-v0", transition=[[0.0, 1.0], [1.0, 0.0]], reward=[1.0, 0.0], initial=[1.0, 0.0])
    >>> env.reset(seed=0)[0], env.step(0)[:2]
    (0, (1, 1.0))
    """

    def __init__(
        self,
        transition: ArrayLike | str | Path,
        reward: ArrayLike | None = None,
        initial: ArrayLike | None = None,
        terminal: ArrayLike | None = None,
        reward_noise: float = 0.0,
        render_mode: str | None = None,
    ) -> None:
        if isinstance(transition, str | Path):
            if reward is not None or initial is not None or terminal is not None:
                raise ValueError(
                    "a path of an .npz file holds all tables: give no reward, initial or terminal beside it"
                )
            mdp = TabularMDP.from_npz(transition)
        elif reward is None or initial is None:
            raise ValueError("a transition array needs reward and initial beside it")
        else:
            mdp = TabularMDP(transition, reward, initial, terminal)  # type: ignore[arg-type]
        super().__init__(mdp=mdp, reward_noise=reward_noise, render_mode=render_mode)
