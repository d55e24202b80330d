"""Reports on a surface: the whole report, its uplift, item rates, recent window and cost of exploration."""
