"""The engine: ranking, feedback and learning over a store, without HTTP."""
