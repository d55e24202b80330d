"""Reports on a surface: learner against holdout, item rates, exploration, recent window."""
