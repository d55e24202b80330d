"""Reading click logs: detecting file formats, checking rows, and counting with DuckDB, compiled scanners or Ray.

To add a log format, see :mod:`bothworlds.clicks.reading.layouts`.
"""
