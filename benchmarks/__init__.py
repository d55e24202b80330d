"""Benchmarks: see README.md for what each measures and how to run it.

Times on a shared machine mean little by themselves. So every benchmark reports a ratio between things measured in the
same run, or how the cost grows with the size of the problem.
"""
