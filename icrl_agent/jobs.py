"""Independent jobs: local processes through joblib, or a Dask cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Literal

import joblib

__all__ = ["Backend", "parallel_jobs"]

Backend = Literal["local", "dask"]


@contextlib.contextmanager
def parallel_jobs(
    n_jobs: int = 2, backend: Backend = "local", scheduler: str | None = None, *, in_order: bool = True
) -> Iterator[Any]:
    """Yield a ``joblib.Parallel``; local results come one by one, a cluster's all together.

    Args:
        n_jobs: local processes, at least 1.
        backend: "local" processes, or a "dask" cluster (needs the optional extra ``cluster``).
        scheduler: address of the cluster's scheduler, for example "tcp://10.0.0.1:8786".
        in_order: yield local results in the order of the jobs, not as they finish.

    Raises:
        ValueError: for a size below 1, or a cluster that is not named or not there.

    >>> with parallel_jobs(n_jobs=1) as run:
    ...     list(run(joblib.delayed(abs)(k) for k in (-1, -2)))
    [1, 2]
    """
    if n_jobs < 1:
        raise ValueError(f"n_jobs must be at least 1, got {n_jobs}")
    if backend == "local":
        if scheduler is not None:
            raise ValueError("a scheduler's address goes with backend 'dask'")
        yield joblib.Parallel(n_jobs=n_jobs, return_as="generator" if in_order else "generator_unordered")
        return
    if backend != "dask":
        raise ValueError(f"backend must be 'local' or 'dask', got {backend!r}")
    if not scheduler:
        raise ValueError("backend 'dask' needs the scheduler's address, for example tcp://127.0.0.1:8786")
    try:
        from distributed import Client
    except ImportError as error:
        raise ValueError("backend 'dask' needs the optional extra: pip install 'icrl-agent[cluster]'") from error
    try:
        client = Client(scheduler, timeout=10)  # type: ignore[no-untyped-call]
    except Exception as error:  # an address of no known kind ends in an AssertionError
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"no Dask scheduler answers at {scheduler!r}: {reason}") from error
    with client, joblib.parallel_config(backend="dask"):
        yield joblib.Parallel(return_as="list")
