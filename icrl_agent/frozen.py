"""A frozen model with what goes with its weights: where they come from and go to, and which features they read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from gymnasium import spaces

from icrl_agent.adaptation import checked_lengthscale, is_auto
from icrl_agent.features import FeatureMap, RandomFourier, feature_map_for
from icrl_agent.model import SoftmaxICTD, load_weights, save_weights
from icrl_agent.model.transformer import LayerKind
from icrl_agent.wrappers.observation import as_feature_map

__all__ = ["SHIPPED_WEIGHTS", "FrozenModel", "checked_seed"]

#: Folder of the weights that the package ships.
SHIPPED_WEIGHTS = Path(__file__).parent / "weights"


if TYPE_CHECKING:
    _constructor_only = classmethod
else:

    class _constructor_only(classmethod):  # noqa: N801 - used like classmethod
        """A classmethod that refuses to be called on an instance, where its result would be easy to lose."""

        def __get__(self, instance: Any, owner: type | None = None) -> Callable[..., Any]:
            if instance is not None:
                name, kind = self.__func__.__name__, type(instance).__name__
                raise TypeError(f"{name} returns a new agent: write agent = {kind}.{name}(...)")
            return super().__get__(instance, owner)


class FrozenModel:
    """A transformer that is never trained, the seed of its default features, and what contexts choose for it.

    Args:
        model: the transformer.
        feature_seed: seed of the default feature maps.
        auto_sharpness: whether every context gets a sharpness of its own, which multiplies the model's A.
        lengthscale: of the default features of vectors: a number, "median" or "auto", see ``RandomFourier``.
    """

    def __init__(
        self,
        model: SoftmaxICTD,
        feature_seed: int = 0,
        *,
        auto_sharpness: bool = False,
        lengthscale: float | Literal["median", "auto"] = "median",
    ) -> None:
        if not isinstance(model, SoftmaxICTD):
            raise TypeError(f"model must be a SoftmaxICTD, got {type(model).__name__}")
        seed = checked_seed(feature_seed)
        if seed is None:
            raise ValueError("feature_seed must be a non-negative integer, got None")
        self.model = model.eval().requires_grad_(False)
        self.feature_seed = seed
        self.auto_sharpness = auto_sharpness
        self.lengthscale = checked_lengthscale(lengthscale)

    @_constructor_only
    def from_theory(
        cls,
        feature_dim: int = 32,
        n_layers: int = 60,
        sharpness: float | Literal["auto"] = 8.0,
        step_size: float = 1.0,
        feature_seed: int = 0,
        device: str | torch.device = "cpu",
        layer: LayerKind = "tsm",
        lengthscale: float | Literal["median", "auto"] = "median",
    ) -> Self:
        """Build an agent with the weights of Theorem 1, see ``SoftmaxICTD.from_theory``; nothing is trained.

        ``sharpness="auto"`` chooses one for every context by held-out returns, ``lengthscale="auto"`` likewise for
        the default features of vectors, see ``icrl_agent.selection``; "median" is the median distance.
        """
        auto = is_auto("sharpness", sharpness)
        model = SoftmaxICTD.from_theory(feature_dim, n_layers, 1.0 if auto else float(sharpness), step_size, layer)
        return cls(model, feature_seed, auto_sharpness=auto, lengthscale=lengthscale).to(device)

    @_constructor_only
    def from_pretrained(cls, name: str = "universal") -> Self:
        """Load weights that the package ships; no network.

        Raises:
            ValueError: for a name that is not shipped; it lists those that are.
        """
        path = SHIPPED_WEIGHTS / f"{name}.safetensors"
        if not path.is_file():
            shipped = ", ".join(sorted(file.stem for file in SHIPPED_WEIGHTS.glob("*.safetensors"))) or "none yet"
            raise ValueError(f"no shipped weights are named {name!r}; shipped: {shipped}")
        return cls._read(path)

    @_constructor_only
    def load(cls, path: str | Path) -> Self:
        """Read an agent from a weights file or a run folder; returns it.

        Raises:
            ValueError: if there are no weights, or the file is not one of this package.
            TypeError: if called on an instance: the loaded agent is the return value.
        """
        return cls._read(path)

    @classmethod
    def _read(cls, path: str | Path) -> Self:
        model, config = load_weights(path)
        return cls(
            model,
            int(config.get("feature_seed", 0)),
            auto_sharpness=bool(config.get("auto_sharpness", False)),
            lengthscale=config.get("lengthscale", "median"),
        )

    def save(self, path: str | Path) -> None:
        """Write weights and settings to a safetensors file."""
        names = ("feature_seed", "auto_sharpness", "lengthscale")
        save_weights(self.model, path, {name: getattr(self, name) for name in names})

    def to(self, device: str | torch.device) -> Self:
        """Move the model to a device; returns the agent itself.

        Raises:
            ValueError: for a device that this machine does not have.
        """
        try:
            self.model.to(device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device {device!r} is not available: {error}") from error
        return self

    def _feature_map(self, feature_map: FeatureMap | Mapping[str, Any] | None, space: Any) -> FeatureMap:
        if feature_map is None and isinstance(space, spaces.Box | spaces.MultiBinary):
            return RandomFourier("context", "context", self.model.feature_dim, self.lengthscale, self.feature_seed)
        return self._fixed_feature_map(feature_map, space)

    def _fixed_feature_map(self, feature_map: FeatureMap | Mapping[str, Any] | None, space: Any) -> FeatureMap:
        """A map that needs no context: a policy acts before there is one."""
        if feature_map is None:
            default = feature_map_for(space, self.model.feature_dim, self.feature_seed)
            if isinstance(default, RandomFourier) and not isinstance(self.lengthscale, str):
                return dataclasses.replace(default, lengthscale=self.lengthscale)
            return default
        chosen = as_feature_map(feature_map, space)
        if chosen.dim != self.model.feature_dim:
            raise ValueError(
                f"the feature map has {chosen.dim} features, the weights need feature_dim = {self.model.feature_dim}"
            )
        return chosen


def checked_seed(seed: int | None) -> int | None:
    """A seed as a Python int, or None.

    Raises:
        ValueError: for anything but a non-negative integer below 2^63.
    """
    if seed is None:
        return None
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise ValueError(f"seed must be a non-negative integer below 2^63 or None, got {seed!r}")
    return int(seed)
