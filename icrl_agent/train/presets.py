"""Named pretraining runs."""

from __future__ import annotations

from icrl_agent.train.config import PretrainConfig

__all__ = ["PRESETS", "preset"]

#: Named runs. "paper": the emergence experiment; "paper-small": the sizes of the linear-attention experiments;
#: "universal": the shipped weights; "order": for Fourier features of a state's index, which tell neighbours;
#: "control": state-action pairs under policies that change.
PRESETS: dict[str, PretrainConfig] = {
    "paper": PretrainConfig(),
    "paper-small": PretrainConfig(
        features="random_uniform", feature_dim=4, context_length=(30, 30), n_layers=(3, 3), learning_rate=3e-3
    ),
    "universal": PretrainConfig(
        n_steps=4000,
        families=("boyan", "garnet"),
        n_states=(5, 12),
        feature_dim=32,
        context_length=(64, 2048),
        gamma=(0.5, 0.9),
        n_layers=(20, 150),
        weigh_by_length=True,
        ema_decay=0.998,
    ),
    "order": PretrainConfig(
        n_steps=2000,
        n_states=(10, 30),
        features="random_fourier",
        feature_dim=32,
        context_length=(32, 512),
        gamma=(0.5, 0.9),
        n_layers=(20, 100),
        tasks_per_step=48,
        weigh_by_length=True,
        ema_decay=0.998,
    ),
    "control": PretrainConfig(
        n_steps=2000,
        families=("pairs",),
        n_states=(8, 12),
        n_actions=(3, 5),
        feature_dim=64,
        context_length=(256, 1024),
        gamma=(0.8, 0.95),
        n_layers=(5, 30),
        tasks_per_step=96,
        windows_per_task=3,
        learning_rate=2e-2,
        weigh_by_length=True,
        ema_decay=0.998,
    ),
}


def preset(name: str) -> PretrainConfig:
    """Return a preset by name.

    Raises:
        ValueError: for an unknown name; it lists the known ones.

    >>> preset("paper").n_layers
    (15, 15)
    """
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}; known: {', '.join(PRESETS)}")
    return PRESETS[name]
