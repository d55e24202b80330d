"""Fitting the position-based model to counts: tables and identification, optimiser, intervals, warnings."""
