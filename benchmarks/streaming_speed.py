"""A value at every step: its cost in short and long windows, against rebuilding the prompt, and its memory.

    python benchmarks/streaming_speed.py

Ten states, 60 layers, one thread. Both windows are filled first, then take the same steps in turns, 5000 at a time, as
many as the long window has columns, so that the work of its wrapping is in. Rebuilding is the literal float64 forward
pass on a new prompt of 1000 transitions. Memory is the process's peak, of an unbounded stream.
"""

from __future__ import annotations

import resource

from ratios import Ratio, arguments, report, seconds

import numpy as np  # isort: skip - after the number of threads is set
import torch

from icrl_agent import ICRLAgent
from icrl_agent.features import RandomUnit
from icrl_agent.prompt import build_prompt
from icrl_agent.streaming import Stream

SHORT, LONG, CHUNK = 1000, 100_000, 5000


def run(stream: Stream, states: np.ndarray, value_every: int = 1) -> None:
    """Append a transition to every state, and ask for its value."""
    for step, state in enumerate(states.tolist()):
        stream.append(0.5, state, False, False)
        if step % value_every == 0:
            stream.value(state)


def main() -> None:
    """Run and print."""
    options = arguments(__doc__, steps=1_000_000)
    torch.set_num_threads(1)
    agent, feature_map = ICRLAgent.from_theory(), RandomUnit(10, 32)
    states = np.random.default_rng(0).integers(10, size=options.steps)

    unbounded = agent.stream(feature_map)
    unbounded.reset(0)
    run(unbounded, states[:10_000], 10)
    early = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for start in range(10_000, options.steps, CHUNK):
        run(unbounded, states[start : start + CHUNK], 10)
    late = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    windows = {length: agent.stream(feature_map, context_length=length) for length in (SHORT, LONG)}
    for length, stream in windows.items():
        stream.reset(0)
        run(stream, states[:length], length)
    spent = dict.fromkeys(windows, 0.0)
    for start in range(0, LONG, CHUNK):
        for length, stream in windows.items():
            spent[length] += seconds(lambda stream=stream, start=start: run(stream, states[start : start + CHUNK]))
    short, long = (spent[length] / LONG for length in (SHORT, LONG))

    model = ICRLAgent.from_theory().model.double()
    rewards = np.full(SHORT, 0.5)

    def rebuild() -> None:
        prompt = build_prompt(feature_map(states[: SHORT + 1]), rewards)
        with torch.no_grad():
            model.query_value(torch.from_numpy(prompt)[None], 0.9)

    rebuilt = seconds(rebuild, rounds=5)
    report(
        [
            Ratio("streaming, time per step, window of 100,000 over 1,000", long / short, 1.5, True,
                  f"{1e6 * long:.0f} and {1e6 * short:.0f} microseconds per step with its value"),
            Ratio("streaming, rebuilding the prompt of 1,000 over one step", rebuilt / short, 200, False,
                  f"{1e3 * rebuilt:.1f} ms and {1e6 * short:.0f} microseconds"),
            Ratio("streaming, peak memory after all steps over after 10,000", late / early, 1.02, True,
                  f"{late / 1024:.1f} and {early / 1024:.1f} MB, {options.steps} steps"),
        ],
        options.json,
    )  # fmt: skip


if __name__ == "__main__":
    main()
