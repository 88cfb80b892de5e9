"""Reference algorithms in plain float64 NumPy: weighted softmax TD, its kernels, and the classical estimators."""

from icrl_agent.algorithms.classical import (
    batch_td,
    certainty_equivalence,
    linear_td,
    lstd,
    monte_carlo,
    tabular_td,
)
from icrl_agent.algorithms.convergence import (
    assumption_sharpness,
    depth_for_error,
    one_hot_sharpness,
    sup_norm_bound,
)
from icrl_agent.algorithms.kernel import (
    KernelDiagonality,
    LayerMap,
    assumption_margin,
    empirical_kernel,
    fixed_point,
    kernel_diagonality,
    population_kernel,
    spectral_radius,
)
from icrl_agent.algorithms.softmax_q import weighted_softmax_q
from icrl_agent.algorithms.weighted_softmax_td import Score, inner_product, softmax_weights, weighted_softmax_td

__all__ = [
    "KernelDiagonality",
    "LayerMap",
    "Score",
    "assumption_margin",
    "assumption_sharpness",
    "batch_td",
    "certainty_equivalence",
    "depth_for_error",
    "empirical_kernel",
    "fixed_point",
    "inner_product",
    "kernel_diagonality",
    "linear_td",
    "lstd",
    "monte_carlo",
    "one_hot_sharpness",
    "population_kernel",
    "softmax_weights",
    "spectral_radius",
    "sup_norm_bound",
    "tabular_td",
    "weighted_softmax_q",
    "weighted_softmax_td",
]
