"""What is measured, against what, and how. Run all of it with ``make bench``.

Times on a shared machine mean little by themselves, so every section ends in a ratio between things measured in the
same run, or in how cost grows with the size of the problem.
"""
