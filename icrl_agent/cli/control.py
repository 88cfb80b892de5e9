"""``icrl control``: the frozen agent acts, beside rivals that learn, at equal steps."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from icrl_agent import __version__
from icrl_agent.cli.evaluate import THEORY, Evaluate, make_env
from icrl_agent.cli.pretrain import progress_bar
from icrl_agent.control.targets import TargetKind
from icrl_agent.envs.tabular_env import TASK_SEED

if TYPE_CHECKING:
    from icrl_agent.control import Exploration
    from icrl_agent.eval.control_run import ControlRun

__all__ = ["Control"]


@dataclass(frozen=True)
class Control:
    """Let the frozen agent act: it improves its policy from its own experience, in context alone."""

    env: Annotated[str, tyro.conf.Positional]
    """Environment id with Discrete actions, for example RandomMDP-v0, FrozenLake-v1 or CartPole-v1."""
    weights: str = THEORY
    """"theory" (the theorem's weights), the name of shipped weights, a weights file, or a run folder."""
    run_dir: Path | None = None
    """New folder for config.json, metrics.csv, the figure and TensorBoard events."""
    n_steps: int = 2000
    """Environment steps per run."""
    gamma: float = 0.9
    """Discount factor in [0, 1)."""
    target: TargetKind = "greedy"
    """What a transition's target reads: the best next action, the policy's probabilities, or the action recorded."""
    bonus: float = 1.0
    """Optimism: bonus of a pair the context knows nothing of, reward units. 0 = epsilon-greedy instead."""
    epsilon: float = 0.2
    """Probability of a random action, where the bonus is 0."""
    context_length: int | None = None
    """Columns in the sliding window; unbounded if not given."""
    refresh_every: int = 20
    """Steps between forward passes."""
    feature_dim: int = 64
    """Length of the feature vectors (the theorem's weights)."""
    sharpness: float = 8.0
    """Sharpness of the attention (the theorem's weights)."""
    n_layers: int | None = None
    """Depth; the weights' own if not given."""
    n_seeds: int = 3
    """Runs, each with a seed of its own."""
    seed: int = 0
    """First seed."""
    rivals: tuple[str, ...] = ("Q-learning", "SARSA", "value iteration")
    """Rivals at equal steps: also "DQN, tuned" and "DQN, defaults" (Stable-Baselines3, slow). Discrete states only."""
    env_kwargs: str = "{}"
    """Arguments of the environment as JSON, for example '{"task_seed": 7}'."""

    def run(self) -> None:
        """Act, print the table, write the run folder."""
        from icrl_agent.eval.control_run import run_controls
        from icrl_agent.eval.run_folder import check_free

        if self.run_dir is not None:
            check_free(self.run_dir)
        if self.n_seeds < 1 or self.seed < 0:
            raise ValueError(f"n_seeds must be at least 1 and seed at least 0, got {self.n_seeds} and {self.seed}")
        kwargs = Evaluate(env=self.env, env_kwargs=self.env_kwargs).parsed_env_kwargs()
        task_seed = getattr(make_env(self.env, kwargs).unwrapped, TASK_SEED, None)
        if task_seed is not None:
            kwargs[TASK_SEED] = task_seed  # one task throughout, also where the environment drew it
        agent = self._agent()
        with progress_bar("acting", "runs", self.n_seeds * (1 + len(self.rivals))) as tick:
            run = run_controls(
                agent,
                lambda: make_env(self.env, kwargs),
                n_steps=self.n_steps,
                gamma=self.gamma,
                seeds=range(self.seed, self.seed + self.n_seeds),
                rivals=self.rivals,
                options={
                    "target": self.target,
                    "exploration": self._exploration(),
                    "context_length": self.context_length,
                    "refresh_every": self.refresh_every,
                    "n_layers": self.n_layers,
                },
                config={"command": "control", "version": __version__, **dataclasses.asdict(self)},
                progress=tick,
            )
        if self.run_dir is not None:
            run.write(self.run_dir)
        _print(run, self)

    def _agent(self) -> Any:
        if self.weights != THEORY:
            return Evaluate(env=self.env, weights=self.weights).agent()
        from icrl_agent.agent import ICRLAgent

        return ICRLAgent.from_theory(self.feature_dim, sharpness=self.sharpness)

    def _exploration(self) -> Exploration:
        from icrl_agent.control import Epsilon, Optimism

        return Optimism(self.bonus) if self.bonus else Epsilon(self.epsilon)


def _print(run: ControlRun, command: Control) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    shown = run.shown_steps()
    table = Table("method", title=f"{command.env}: {run.measure}, {command.n_seeds} runs, mean ± 95 %")
    for n_steps in shown:
        table.add_column(f"{n_steps} steps", justify="right")
    for method in run.curves:
        cells = []
        for n_steps in shown:
            mean, half = run.interval(method, n_steps)
            cells.append(f"{mean:.3f} ± {half:.3f}" if command.n_seeds > 1 else f"{mean:.3f}")
        table.add_row(method, *cells)
    console.print(table)
    if run.reason is not None:
        console.print(f"no exact returns: {run.reason}", soft_wrap=True)
    console.print(f"frozen agent: {run.parameters_changed} parameters changed, {run.gradients} gradients")
    if command.run_dir is not None:
        console.print(f"metrics and figure: {command.run_dir}", soft_wrap=True)
        console.print(f"TensorBoard: icrl tensorboard {command.run_dir}", soft_wrap=True)
