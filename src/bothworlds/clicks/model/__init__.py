"""Fitted click models: what they say, how they are saved, how well they predict, figures."""
