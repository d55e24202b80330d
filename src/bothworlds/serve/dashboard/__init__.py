"""The dashboard: routes, view models, text and SVG charts."""
