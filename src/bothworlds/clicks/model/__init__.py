"""Fitted click models: their parameters and tables, files, predictions, and figures."""
