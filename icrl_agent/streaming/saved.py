"""A stream's context as plain arrays, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icrl_agent.streaming.stream import Stream
from icrl_agent.streaming.sums import NO_STATE

__all__ = ["stream_arrays", "stream_from_arrays"]

_WINDOW = ("observations", "running", "columns")
_SUMS = ("observations", "running", "counts", "reward_sum", "source", "next_state", "continues")


def stream_arrays(stream: Stream) -> dict[str, NDArray[Any]]:
    """The context of a stream: with a window its columns, else its sums by state."""
    history = stream.history
    sums = history.sums
    running = np.array([-1 if stream.present is None else stream.present, *stream.flags])
    if stream.context_length is None:
        source, next_state = np.nonzero(sums.successors)
        continues = sums.successors[source, next_state]
        arrays = (stream.observations, running, sums.counts, sums.rewards, source, next_state, continues)
        return dict(zip(_SUMS, arrays, strict=True))
    columns = np.array(history.columns, np.float64).reshape(-1, 4)
    return dict(zip(_WINDOW, (stream.observations, running, columns), strict=True))


def stream_from_arrays(arrays: Mapping[str, NDArray[Any]], like: Stream) -> Stream:
    """Rebuild the context with the weights and settings of another stream.

    Raises:
        ValueError: if an array is missing.
    """
    wanted = _SUMS if like.context_length is None else _WINDOW
    if missing := [name for name in wanted if name not in arrays]:
        raise ValueError(f"a context needs the arrays {', '.join(missing)}")
    stream = Stream(like.weights, like.feature_map, like.gamma, like.context_length, like.n_layers, like.tolerance)
    slots = [stream.hold(observation) for observation in arrays["observations"]]
    if like.context_length is None:
        successors = np.zeros((len(slots), len(slots)))
        successors[arrays["source"], arrays["next_state"]] = arrays["continues"]
        stream.history.load(arrays["counts"], arrays["reward_sum"], successors)
    for source, next_state, reward, continues in arrays.get("columns", np.zeros((0, 4))).tolist():
        if source == NO_STATE:
            stream.history.add_end(stream.hold(arrays["observations"][0]))
        else:
            held = stream.hold(arrays["observations"][int(source)])
            stream.history.add(held, slots[int(next_state)], reward, continues)
    present, has_steps, has_ended = arrays["running"].tolist()
    if present >= 0:
        stream.go_on_from(arrays["observations"][present], bool(has_steps), bool(has_ended))
    if like.context_length is not None:
        for slot in slots:
            stream.history.release(slot)
    return stream
