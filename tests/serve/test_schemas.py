"""The JSON schemas of answers: times that the engine returns as integers are documented as HTTP writes them."""

from __future__ import annotations

from bothworlds.serve.schemas import Ranking, ReportView, json_schemas


def test_times_are_documented_as_strings():
    _, schemas = json_schemas([Ranking, ReportView], "{name}")
    for name, field in (("Ranking", "expires_at"), ("ReportView", "since"), ("SeriesPoint", "at")):
        time = schemas[name]["properties"][field]
        assert (time["type"], time["format"]) == ("string", "date-time")
    assert {"type": "string", "format": "date-time"} in [
        {key: kind[key] for key in ("type", "format") if key in kind}
        for kind in schemas["SampleRatio"]["properties"]["alarm_at"]["anyOf"]
    ]
