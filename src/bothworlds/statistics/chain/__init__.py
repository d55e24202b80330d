"""Chain click models: a user walks down the list, and goes on after a skip or a click with some probability."""
