"""Pretraining and its dashboards."""
