"""Reading click logs: file formats, row checks, counting with DuckDB, compiled scanners or Ray."""
