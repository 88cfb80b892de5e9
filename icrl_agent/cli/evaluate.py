"""``icrl evaluate``: values from transitions, beside rivals and controls."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import gymnasium as gym
import tyro

from icrl_agent import __version__
from icrl_agent.envs.registration import ENVIRONMENT_IDS
from icrl_agent.envs.tabular_env import TASK_SEED

if TYPE_CHECKING:
    from icrl_agent.agent import ICRLAgent
    from icrl_agent.eval.evaluation_run import EvaluationRun
    from icrl_agent.features import FeatureMap

__all__ = ["THEORY", "Evaluate", "make_env"]

#: ``--weights`` value that stands for the theorem's weights.
THEORY = "theory"
#: States that the printed table lists; the run folder has all.
LISTED_STATES = 20


@dataclass(frozen=True)
class Evaluate:
    """Estimate values: of the uniformly random policy in an environment, or of whatever policy logged --data."""

    env: Annotated[str | None, tyro.conf.Positional] = None
    """Environment id, for example BoyanChain-v0 or FrozenLake-v1."""
    data: str | None = None
    """Logged transitions instead of an environment: a .npz or .csv file, or minari:NAME."""
    weights: str = THEORY
    """"theory" (the theorem's weights), the name of shipped weights, a weights file, or a run folder."""
    sharpness: float | Literal["auto"] | None = None
    """Of the theorem's weights; "auto" chooses it in the context. 8 if not given."""
    feature_dim: int | None = None
    """Number of features with the theorem's weights; 32 if not given, vectors deserve more."""
    features: Literal["unit", "fourier"] = "unit"
    """Features of a state: random directions, or Fourier features of its index (neighbours resemble each other)."""
    run_dir: Path | None = None
    """New folder for config.json, values.csv, metrics.csv, figures and TensorBoard events."""
    n_steps: int = 1000
    """Transitions in the context."""
    gamma: float = 0.9
    """Discount factor in [0, 1]."""
    n_layers: int | Literal["fixed_point"] | None = None
    """Depth of the transformer, or "fixed_point" for the limit; the weights' own if not given."""
    seed: int = 0
    """Seed of the trajectory."""
    env_kwargs: str = "{}"
    """Arguments of the environment as JSON, for example '{"task_seed": 7}'."""

    def run(self) -> None:
        """Evaluate, print the table, write the run folder."""
        from icrl_agent.eval.evaluation_run import run_evaluation
        from icrl_agent.eval.run_folder import check_free

        if self.run_dir is not None:
            check_free(self.run_dir)
        if self.seed < 0:
            raise ValueError(f"seed must be a non-negative integer, got {self.seed}")
        kwargs = self.parsed_env_kwargs()
        if (self.env is None) == (self.data is None):
            raise ValueError("name either an environment or logged transitions (--data)")
        agent = self.agent()
        if self.data is not None:
            self._run_data(agent, self.data)
            return
        env_id = str(self.env)
        task_seed = getattr(make_env(env_id, kwargs).unwrapped, TASK_SEED, None)
        if task_seed is not None:
            kwargs[TASK_SEED] = task_seed  # one task throughout, also where the environment drew it

        def make(**changes: Any) -> gym.Env[Any, Any]:
            return make_env(env_id, {**kwargs, **changes})

        run = run_evaluation(
            agent,
            make,
            n_steps=self.n_steps,
            gamma=self.gamma,
            seed=self.seed,
            n_layers=self.n_layers,
            feature_map=self._feature_map(make(), agent),
            config={**self._config(), "env_kwargs": json.dumps(kwargs)},
        )
        if self.run_dir is not None:
            run.write(self.run_dir)
        _print_evaluation(run, env_id, kwargs, self.run_dir)

    def _run_data(self, agent: ICRLAgent, data: str) -> None:
        from icrl_agent.eval.evaluation_run import EvaluationRun
        from icrl_agent.logged_data import load_transitions

        result = agent.evaluate_transitions(load_transitions(data), self.gamma, n_layers=self.n_layers)
        run = EvaluationRun(result, [], self._config())
        if self.run_dir is not None:
            run.write(self.run_dir)
        _print_evaluation(run, data, {}, self.run_dir)

    def _config(self) -> dict[str, Any]:
        return {"command": "evaluate", "version": __version__, **dataclasses.asdict(self)}

    def parsed_env_kwargs(self) -> dict[str, Any]:
        """Arguments of the environment."""
        try:
            kwargs = json.loads(self.env_kwargs)
        except json.JSONDecodeError as error:
            raise ValueError(f"--env-kwargs must be JSON such as '{{\"task_seed\": 7}}': {error}") from error
        if not isinstance(kwargs, dict):
            raise ValueError(f"--env-kwargs must be a JSON object, got {self.env_kwargs}")
        return kwargs

    def agent(self) -> ICRLAgent:
        """The agent that ``weights`` names."""
        from icrl_agent.agent import ICRLAgent
        from icrl_agent.frozen import SHIPPED_WEIGHTS

        if self.weights == THEORY:
            return ICRLAgent.from_theory(
                feature_dim=32 if self.feature_dim is None else self.feature_dim,
                sharpness=8.0 if self.sharpness is None else self.sharpness,
            )
        if self.sharpness is not None or self.feature_dim is not None:
            raise ValueError("--sharpness and --feature-dim belong to the theorem's weights: leave --weights out")
        if (SHIPPED_WEIGHTS / f"{self.weights}.safetensors").is_file():
            return ICRLAgent.from_pretrained(self.weights)
        agent: ICRLAgent = ICRLAgent.load(self.weights)
        return agent

    def _feature_map(self, env: gym.Env[Any, Any], agent: ICRLAgent) -> FeatureMap | None:
        from icrl_agent.features import RandomFourier

        dim, seed = agent.model.feature_dim, agent.feature_seed
        if self.features == "fourier" and isinstance(env.observation_space, gym.spaces.Discrete):
            return RandomFourier(shift=0.0, scale=1.0, dim=dim, lengthscale=1.0, seed=seed)
        return None


def make_env(env_id: str, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
    """Make an environment; an unknown id is one plain ValueError."""
    try:
        return gym.make(env_id, **kwargs)
    except ImportError as error:
        raise ValueError(f"environment {env_id!r} names a module that cannot be imported: {error}") from error
    except (gym.error.NameNotFound, gym.error.NamespaceNotFound, gym.error.VersionNotFound) as error:
        known = ", ".join(ENVIRONMENT_IDS)
        raise ValueError(f"no environment {env_id!r}: use one of {known}, or any other Gymnasium id") from error


def _print_evaluation(run: EvaluationRun, env_id: str, kwargs: dict[str, Any], run_dir: Path | None) -> None:
    from rich.console import Console
    from rich.table import Table

    from icrl_agent.eval.evaluation_run import AGENT
    from icrl_agent.train.dashboard import TENSORBOARD_FOLDER

    console = Console(highlight=False)
    result = run.result
    arguments = ", ".join(f"{name}={value}" for name, value in kwargs.items())
    console.print(
        f"\n[bold]{env_id}[/bold]{f' ({arguments})' if arguments else ''}: {result.n_steps} steps,"
        f" γ = {result.gamma:g}, {result.n_layers} layers, {int((result.visits > 0).sum())} of {len(result.visits)}"
        f" states left, estimated in {1000 * result.seconds:.1f} ms",
        soft_wrap=True,
    )
    if result.chosen:
        chosen = ", ".join(f"{name} {value:.3g}" for name, value in result.chosen.items())
        console.print(f"chosen from the context: {chosen}")
    if run.errors:
        table = Table("method", title="squared error of the values, all from the same transitions")
        table.add_column("normalised\n(answering 0: 1)", justify="right")
        table.add_column("centred\n(best constant: 1)", justify="right")
        for error in run.at_full_length():
            style = "bold" if error.method == AGENT else None
            table.add_row(error.method, _number(error.normalized_msve), _number(error.centred_msve), style=style)
        console.print(table)
        if result.reason is not None:
            console.print(f"–: {result.reason}", soft_wrap=True)
    else:
        shown = min(LISTED_STATES, len(result.values))
        table = Table("state", title="estimated values", caption=f"the first {shown} of {len(result.values)} states")
        table.add_column("value", justify="right")
        table.add_column("visits", justify="right")
        for state, value, visits in list(zip(result.states, result.values, result.visits, strict=True))[:shown]:
            table.add_row(str(state), f"{value:.4g}", str(visits))
        console.print(table)
        console.print(f"no errors: {result.reason}", soft_wrap=True)
    if run_dir is not None:
        console.print(f"values, metrics and figures: {run_dir}  (figures in {run_dir / 'figures'})", soft_wrap=True)
        console.print(
            f"TensorBoard: icrl tensorboard {run_dir}  (events in {run_dir / TENSORBOARD_FOLDER})", soft_wrap=True
        )


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "–"
