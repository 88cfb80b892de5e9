"""The agent: a frozen transformer that estimates values from whatever an environment shows in a few hundred steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, overload

from numpy.typing import ArrayLike

from icrl_agent.adaptation import adapted_evaluation, adapted_evaluations, adapted_model
from icrl_agent.collect import collect, single_spaces, without_history
from icrl_agent.context import prompt_context
from icrl_agent.depth import Depth, check_tolerance, context_values, resolve_depth
from icrl_agent.envs.solve import check_gamma, state_values
from icrl_agent.estimate import refuse_endless
from icrl_agent.features import FeatureMap
from icrl_agent.frozen import checked_seed
from icrl_agent.in_loop import ModelInLoop, positive_integer
from icrl_agent.observations import recorded_observation_space, refuse_images
from icrl_agent.queries import checked_queries, recorded_space
from icrl_agent.results import Evaluation
from icrl_agent.transitions import Transitions
from icrl_agent.truth import Task, induced_process, induced_processes
from icrl_agent.wrappers.observation import HistoryWrapper
from icrl_agent.wrappers.policy import PolicyLike
from icrl_agent.wrappers.vector import HistoryWrapper as VectorHistoryWrapper

__all__ = ["ICRLAgent"]


class ICRLAgent(ModelInLoop):
    """A frozen softmax ICTD transformer behind the calls a user makes. It adapts through its context alone.

    Args:
        model: the transformer.
        feature_seed: seed of the default feature maps.
        auto_sharpness: whether every context gets a sharpness of its own, which multiplies the model's A.
        lengthscale: of the default features of vectors: a number, "median" or "auto", see ``RandomFourier``.

    >>> import gymnasium as gym, icrl_agent
    >>> agent = ICRLAgent.from_theory(feature_dim=32)
    >>> result = agent.evaluate(gym.make("BoyanChain-v0", task_seed=1), n_steps=500, gamma=0.9, seed=0)
    >>> result.values.shape
    (10,)
    """

    @overload
    def evaluate(
        self,
        env: Any,
        policy: PolicyLike = None,
        n_steps: int = 1000,
        gamma: float = 0.9,
        queries: ArrayLike | None = None,
        n_layers: Depth | None = None,
        feature_map: FeatureMap | Mapping[str, Any] | None = None,
        seed: int | None = None,
        tolerance: float | None = None,
        *,
        per_env: Literal[False] = False,
    ) -> Evaluation: ...

    @overload
    def evaluate(
        self,
        env: Any,
        policy: PolicyLike = None,
        n_steps: int = 1000,
        gamma: float = 0.9,
        queries: ArrayLike | None = None,
        n_layers: Depth | None = None,
        feature_map: FeatureMap | Mapping[str, Any] | None = None,
        seed: int | None = None,
        tolerance: float | None = None,
        *,
        per_env: Literal[True],
    ) -> list[Evaluation]: ...

    def evaluate(
        self,
        env: Any,
        policy: PolicyLike = None,
        n_steps: int = 1000,
        gamma: float = 0.9,
        queries: ArrayLike | None = None,
        n_layers: Depth | None = None,
        feature_map: FeatureMap | Mapping[str, Any] | None = None,
        seed: int | None = None,
        tolerance: float | None = None,
        *,
        per_env: bool = False,
    ) -> Evaluation | list[Evaluation]:
        """Estimate the values of a policy from ``n_steps`` real transitions: no gradient, no parameter changes.

        Resets the environment, takes exactly ``n_steps`` transitions (over all copies of a vector environment),
        writes them as one context and reads the values from the last layer's current memory. A state seen only as
        the end of terminated transitions has value 0.

        Args:
            env: a Gymnasium environment, plain or under ``HistoryWrapper`` (whose feature map is then used; its
                window is left empty), a Gymnasium vector environment, or a Stable-Baselines3 VecEnv.
            policy: None = sample the action space; a table (n_states, n_actions); a function of the raw observation;
                or a model with ``predict``.
            n_steps: transitions, at least 1; of every copy with ``per_env``.
            gamma: discount factor in [0, 1]; 1 where termination is certain.
            queries: raw observations whose values are wanted; None = all states of a Discrete space (the visited
                ones above 10,000), the visited states of any other space.
            n_layers: depth; None = the model's own; "fixed_point" = the limit of infinitely many layers.
            feature_map: a feature map or its spec; None = the wrapper's, else random directions for Discrete spaces
                and ``RandomFourier`` with the context's own mean, scale and lengthscale for vectors. Dict, Tuple and
                MultiDiscrete observations are vectors as ``gymnasium.spaces.flatten`` writes them, and so are the
                states of the answer.
            seed: of the environment's reset and the policy's sampling; None = unseeded.
            tolerance: stop after a layer that changes no value above it (``Evaluation.n_layers`` says which);
                None = run all.
            per_env: one context per copy of a vector environment instead of one from all; returns a list with one
                ``Evaluation`` per copy, in the copies' order. The copies may then play different tasks.

        Raises:
            ValueError: for an argument out of its range, features of another dimension than the weights', a reward
                that is not finite, copies with different tasks in one context, gamma 1 without certain termination.
            TypeError: for something that is no environment, or a policy or space that is not supported.
        """
        gamma = check_gamma(gamma)
        n_steps = positive_integer("n_steps", n_steps)
        seed = checked_seed(seed)
        depth = resolve_depth(self.model, n_layers)
        tolerance = check_tolerance(tolerance, depth)
        observation_space, _ = single_spaces(env)
        if isinstance(env, HistoryWrapper | VectorHistoryWrapper):
            feature_map = env.feature_map if feature_map is None else feature_map
            observation_space, _ = single_spaces(env.env)
        _refuse_buried_history(env)
        if per_env and not hasattr(env, "num_envs"):
            raise TypeError(f"per_env needs a vector environment, got {type(env).__name__}")
        raw_space, observation_space = observation_space, recorded_observation_space(observation_space)
        if feature_map is None:
            refuse_images(raw_space)
        chosen_map = self._feature_map(feature_map, observation_space)
        tasks = induced_processes(env, policy) if per_env else [induced_process(env, policy)]
        truths = {id(task): None if task.mrp is None else state_values(task.mrp, gamma) for task in tasks}
        asked = None if queries is None else checked_queries(queries, raw_space)
        transitions = collect(env, policy, n_steps, seed, per_env=per_env)
        results = adapted_evaluations(
            self.model,
            self.auto_sharpness,
            transitions.by_copy(len(tasks)) if per_env else [transitions],
            chosen_map,
            observation_space,
            gamma,
            depth,
            asked,
            tasks,
            [truths[id(task)] for task in tasks],
            tolerance,
        )
        return results if per_env else results[0]

    def evaluate_transitions(
        self,
        transitions: Transitions,
        gamma: float = 0.9,
        queries: ArrayLike | None = None,
        n_layers: Depth | None = None,
        feature_map: FeatureMap | Mapping[str, Any] | None = None,
        tolerance: float | None = None,
    ) -> Evaluation:
        """Estimate values from recorded transitions, as ``evaluate`` does after its last step; no truth, no errors.

        Args:
            transitions: at least one.
            gamma: discount factor in [0, 1].
            queries: raw observations whose values are wanted; None = the visited states.
            n_layers: depth; None = the model's own.
            feature_map: a feature map or its spec; None = as in ``evaluate``, for integers from 0 or for vectors.
            tolerance: as in ``evaluate``.

        Raises:
            TypeError: for something that is no ``Transitions``, or images without a feature map.
            ValueError: for an argument out of its range or features of another dimension than the weights'.
        """
        if not isinstance(transitions, Transitions):
            raise TypeError(
                "transitions must be Transitions, which icrl_agent.logged_data.load_transitions reads from a file,"
                f" got {type(transitions).__name__}"
            )
        gamma = check_gamma(gamma)
        depth = resolve_depth(self.model, n_layers)
        tolerance = check_tolerance(tolerance, depth)
        space = recorded_space(transitions, queries)
        if feature_map is None:
            refuse_images(space)
        asked = None if queries is None else checked_queries(queries, space)
        chosen_map = self._feature_map(feature_map, space)
        task = Task(None, "recorded transitions carry no truth")
        return adapted_evaluation(
            self.model, self.auto_sharpness, transitions, chosen_map, space, gamma, depth, asked, task, None, tolerance
        )

    def value(self, obs: Mapping[str, Any], gamma: float = 0.9, n_layers: Depth | None = None) -> float:
        """Value of the present state of one ``HistoryWrapper`` observation.

        Raises:
            ValueError: for gamma outside [0, 1] or a prompt that does not fit the weights.
        """
        gamma = check_gamma(gamma)
        if not isinstance(obs, Mapping):
            raise TypeError(f"obs must be an observation of HistoryWrapper, got {type(obs).__name__}")
        context = prompt_context(obs, self.model.feature_dim)
        if gamma == 1:
            refuse_endless(context)
        depth = resolve_depth(self.model, n_layers)
        model = adapted_model(self.model, context, gamma, depth) if self.auto_sharpness else self.model
        found = context_values(model, context, gamma, depth)
        return float(found.values[context.query_state[0]])


def _refuse_buried_history(env: Any) -> None:
    inner = getattr(without_history(env), "env", None)
    while inner is not None:
        if isinstance(inner, HistoryWrapper | VectorHistoryWrapper):
            raise ValueError(
                f"HistoryWrapper lies under {type(env).__name__}: make it the outermost wrapper, evaluate needs the raw"
                " observations below it"
            )
        inner = getattr(inner, "env", None)
