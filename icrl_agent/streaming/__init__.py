"""Values that are kept up to date while transitions arrive."""

from icrl_agent.streaming.layers import LayerWeights
from icrl_agent.streaming.saved import stream_arrays, stream_from_arrays
from icrl_agent.streaming.stream import Stream
from icrl_agent.streaming.vector import VectorStream

__all__ = ["LayerWeights", "Stream", "VectorStream", "stream_arrays", "stream_from_arrays"]
