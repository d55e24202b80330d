"""The Open Bandit Dataset: random lists and Thompson sampling on the same shop."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.clicks import evaluate, read, to_obp
from tests.clicks.real import real_file

CAMPAIGNS = ("all", "men", "women")


def shares(feedback):
    """How often each item was at each position: the marginals of the logging policy, averaged over time."""
    counts = np.zeros((feedback["n_actions"], 3))
    np.add.at(counts, (feedback["action"], feedback["position"]), 1.0)
    return {str(name): row for name, row in zip(feedback["action_names"], (counts / counts.sum(axis=0)).tolist())}


@pytest.mark.slow
@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_random_lists_evaluated_on_their_own_log_have_its_click_rate(campaign):
    log = read(real_file(f"obd/random_{campaign}.csv"))
    n = to_obp(log)["n_actions"]
    uniform = {name: [1.0 / n] * 3 for name in map(str, to_obp(log)["action_names"])}
    found = evaluate(log, marginals=uniform)
    for name in ("ips", "snips", "clipped"):
        assert found.estimate(name).value == pytest.approx(found.estimate("logged").value, rel=1e-9)
    assert found.support[-1].effective_impressions > 3000
    assert not any("seem to be wrong" in warning for warning in found.warnings)


@pytest.mark.slow
@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_thompson_sampling_evaluated_on_random_lists_has_its_online_click_rate(campaign):
    random, live = (read(real_file(f"obd/{who}_{campaign}.csv")) for who in ("random", "bts"))
    found = evaluate(random, marginals=shares(to_obp(live)))
    earned = evaluate(live, marginals=shares(to_obp(live))).estimate("logged")
    for name in ("ips", "snips", "dr"):
        judged = found.estimate(name)
        error = np.hypot(judged.standard_error, earned.standard_error)
        assert abs(judged.value - earned.value) < 3 * error


@pytest.mark.slow
def test_one_list_out_of_eighty_items_is_too_little_to_trust():
    found = evaluate(read(real_file("obd/random_all.csv")), ["1", "2", "3"], estimator="dr")
    assert any("Too few clicks" in warning for warning in found.warnings)
    assert any("Too few impressions" in warning for warning in found.warnings)


@pytest.mark.slow
def test_no_model_of_clicks_predicts_the_changes_of_the_yandex_sample():
    """Rankings changed clicks about half as much as the position-based model predicts; that log has no times."""
    log = read(real_file("yandex/trainSample"))
    found = evaluate(log, {"9_0": _usual(log, "9_0")})
    assert found.chosen is None
    assert found.reason.startswith("not from this log: no model predicts")
    pbm = next(one for one in found.candidates if one.model == "pbm")
    assert 0.45 < pbm.slope < 0.65
    assert pbm.blocks >= 60


def _usual(log, query):
    """The most frequent list of a query, with its first two results swapped."""
    pages = log.pages()
    own = np.flatnonzero(pages.query == pages.queries.index(query))
    page = own[np.argmax(pages.count[own])]
    items = [pages.items[i] for i in pages.item[pages.starts[page] : pages.starts[page + 1]]]
    return [items[1], items[0], *items[2:]]
