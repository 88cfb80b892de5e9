"""``icrl control``: the frozen agent acts, beside rivals that learn, at equal steps."""

from __future__ import annotations

import dataclasses
import math
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
    """Rivals at equal steps: also "DQN, tuned" and "DQN, defaults" (Stable-Baselines3, slow). Known tables only."""
    env_kwargs: str = "{}"
    """Arguments of the environment as JSON, for example '{"task_seed": 7}'."""

    def run(self) -> None:
        """Act, print the table, write the run folder."""
        from icrl_agent.eval.control_run import judged_by, run_controls
        from icrl_agent.eval.run_folder import check_free

        if self.run_dir is not None:
            check_free(self.run_dir)
        if self.n_seeds < 1 or self.seed < 0:
            raise ValueError(f"n_seeds must be at least 1 and seed at least 0, got {self.n_seeds} and {self.seed}")
        if not 0 <= self.gamma < 1:
            raise ValueError(f"--gamma must be in [0, 1), got {self.gamma}")
        exploration = self._exploration()
        kwargs = Evaluate(env=self.env, env_kwargs=self.env_kwargs).parsed_env_kwargs()
        task_seed = getattr(make_env(self.env, kwargs).unwrapped, TASK_SEED, None)
        if task_seed is not None:
            kwargs[TASK_SEED] = task_seed  # one task throughout, also where the environment drew it
        agent = self._agent()
        mdp, reason = judged_by(make_env(self.env, kwargs), self.rivals, self.gamma)
        rivals = self.rivals if mdp is not None else ()
        if self.rivals and not rivals:
            _say(f"left out: {', '.join(self.rivals)}: rivals are judged by exact returns, and {reason}")
        with progress_bar("acting", "runs", self.n_seeds * (1 + len(rivals))) as tick:
            run = run_controls(
                agent,
                lambda: make_env(self.env, kwargs),
                n_steps=self.n_steps,
                gamma=self.gamma,
                seeds=range(self.seed, self.seed + self.n_seeds),
                rivals=rivals,
                options={
                    "target": self.target,
                    "exploration": exploration,
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

        if not 0 <= self.epsilon <= 1:
            raise ValueError(f"--epsilon must be a number in [0, 1], got {self.epsilon}")
        if not self.bonus:
            return Epsilon(self.epsilon)
        try:
            return Optimism(self.bonus)
        except ValueError as error:
            raise ValueError(f"--bonus must be 0 or a positive finite float32 number, got {self.bonus}") from error


def _say(line: str) -> None:
    from rich.console import Console

    Console(highlight=False).print(line, soft_wrap=True, markup=False)


def _print(run: ControlRun, command: Control) -> None:
    _print_table(run, command.env)
    if run.reason is not None:
        _say(f"no exact returns: {run.reason}")
    _say(f"frozen agent: {run.parameters_changed} parameters changed, {run.gradients} gradients")
    if command.run_dir is not None:
        _say(f"metrics and figure: {command.run_dir}")
        _say(f"TensorBoard: icrl tensorboard {command.run_dir}")


def _print_table(run: ControlRun, env: str) -> None:
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table

    console = Console(highlight=False)
    spread = "1 run" if run.n_runs == 1 else f"{run.n_runs} runs, mean ± 95 %"
    console.print(f"{env}: {run.measure}, {spread}", soft_wrap=True, markup=False)
    if all(math.isnan(run.interval(method, run.steps[-1])[0]) for method in run.curves):
        _say(f"no episode ended in {run.steps[-1]} steps: there is nothing to show")
        return
    for most in (4, 3, 2, 1):  # as many columns as the terminal has room for
        table = Table()
        table.add_column("method", no_wrap=True)
        shown = run.shown_steps(most)
        for n_steps in shown:
            table.add_column(f"{n_steps} step{'s' if n_steps > 1 else ''}", justify="right", no_wrap=True)
        for method in run.curves:
            table.add_row(method, *(_cell(*run.interval(method, n_steps)) for n_steps in shown))
        if Measurement.get(console, console.options.update(max_width=10_000), table).maximum <= console.width:
            break
    console.print(table)


def _cell(mean: float, half: float) -> str:
    """One cell; "-" where no episode has ended so far, no interval for one run."""
    if math.isnan(mean):
        return "-"
    return f"{mean:.3f}" if math.isnan(half) else f"{mean:.3f} ± {half:.3f}"
