"""Settings: sources, precedence and errors."""

from __future__ import annotations

import pytest

from bothworlds.serve.config import Config, load_config


def test_defaults():
    assert load_config(None, {}) == Config()
    assert (Config().store, Config().host, Config().port) == ("bothworlds.db", "127.0.0.1", 8080)


def test_options_override_the_environment_which_overrides_the_file(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text(
        'port = 1\nhost = "a"\nstore = "x"\nallowed_origins = ["https://a"]\n[limits]\nbatch = 5\nitems = 6\n'
    )
    environment = {"BOTHWORLDS_PORT": "2", "BOTHWORLDS_HOST": "b", "BOTHWORLDS_LIMITS_BATCH": "7", "BOTHWORLDS_X": "y"}
    found = load_config(path, environment, port=3, workers=None)
    assert (found.port, found.host, found.store) == (3, "b", "x")
    assert (found.limits.batch, found.limits.items) == (7, 6)
    assert found.allowed_origins == ("https://a",)


def test_lists_and_booleans_from_the_environment():
    said = {"BOTHWORLDS_ALLOWED_ORIGINS": "https://a, https://b", "BOTHWORLDS_PUBLIC_FEEDBACK": "true"}
    found = load_config(None, said)
    assert (found.allowed_origins, found.public_feedback) == (("https://a", "https://b"), True)
    assert load_config(None, {"BOTHWORLDS_TRUSTED_PROXIES": ""}).trusted_proxies == ()


@pytest.mark.parametrize(
    ("text", "what"),
    [("prot = 1", "prot"), ("port = 'x'", "port"), ("port = ", "cannot read"), ("[limits]\nbatch = 0", "limits.batch")],
)
def test_an_invalid_file_is_refused_with_the_reason(tmp_path, text, what):
    path = tmp_path / "settings.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=what):
        load_config(path, {})


def test_a_missing_file_and_an_invalid_variable_are_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no file"):
        load_config(tmp_path / "nothing.toml", {})
    for variable in ("BOTHWORLDS_PORT", "BOTHWORLDS_LIMITS_BATCH"):
        with pytest.raises(ValueError, match=f"the variable {variable} is wrong: expected `int`"):
            load_config(None, {variable: "many"})
    with pytest.raises(ValueError, match="the setting port is wrong"):
        load_config(None, {}, port="many")
