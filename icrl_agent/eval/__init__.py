"""Evaluation runs, baselines and comparisons."""
