"""Comparing click models on pages that they were not fitted to."""
