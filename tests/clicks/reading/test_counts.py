"""Reading: what the filters keep, in which order, and that every way to hand over a log gives the same counts."""

from __future__ import annotations

import gzip
import json
import random

import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest

from bothworlds.clicks import generate, read
from bothworlds.clicks.reading.database import Database
from bothworlds.clicks.reading.sources import find_files
from tests.clicks.naive import as_dictionaries, count_sessions, same
from tests.clicks.real import ROOT, needs_real_logs
from tests.clicks.written import counts, write

TIDY = "event,position,item,click\n1,1,a,1\n1,2,b,0\n2,1,b,0\n2,2,a,1\n3,1,a,0\n3,2,c,0\n"


@pytest.fixture
def tidy(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(TIDY)
    return path


def sessions(seed, lines=400):
    """A Relevance Prediction log with everything that may happen in one."""
    rng = random.Random(seed)
    text, session = [], 0
    for _ in range(lines):
        if rng.random() < 0.2:
            session += rng.randint(1, 3)
        if rng.random() < 0.5:
            urls = [rng.randint(1, 12) for _ in range(rng.randint(1, 6))]
            text.append(
                f"{session}\t{rng.randint(0, 99)}\tQ\t{rng.randint(1, 3)}\t{rng.randint(0, 2)}\t"
                + "\t".join(map(str, urls))
            )
        else:
            text.append(f"{session}\t{rng.randint(0, 99)}\tC\t{rng.randint(1, 12)}")
    return "0\t0\tQ\t1\t0\t1\n" + "\n".join(text) + "\n"


def rows_of(log):
    """The table of a log."""
    return log.database.connection.table("rows")


# Sessions


@pytest.mark.slow
def test_ignored_clicks_are_those_of_the_query(tmp_path):
    (tmp_path / "log").write_text(sessions(0))
    _, _, (stray, early) = count_sessions(sessions(0))
    assert len(stray) > 3
    everywhere = "(in the whole log, for all queries)"
    for query, number in stray.items():
        assert {
            f"{number} clicks on urls that their page does not show were ignored",
            f"{early} clicks before any page of their session were ignored {everywhere}",
        } < set(counts(tmp_path / "log", query=query).notes)


@pytest.mark.slow
def test_ignored_clicks_of_the_native_layout_are_those_of_the_pages_kept(tmp_path):
    path = tmp_path / "log"
    path.write_text("1_0\t7,8 : 7 , 9\n2_0\t7,8 : 9 , 10\n2_0\t7,6 : 11\n")
    message = "{} on urls that their page does not show were ignored"
    assert [
        counts(path, **filters).notes for filters in ({}, {"query": "1_0"}, {"query": "2_0"}, {"top_items": 2})
    ] == [(message.format(number),) for number in ("4 clicks", "1 click", "3 clicks", "3 clicks")]


@pytest.mark.slow
def test_sessions_are_counted_as_by_hand(tmp_path):
    for seed in range(5):
        (tmp_path / "log").write_text(sessions(seed))
        counted = counts(tmp_path / "log")
        shown, clicked, (stray, early) = count_sessions(sessions(seed))
        assert as_dictionaries(counted) == (shown, clicked), seed
        assert counted.pages == sessions(seed).count("\tQ\t"), seed
        assert {
            f"{sum(stray.values())} clicks on urls that their page does not show were ignored",
            f"{early} clicks before any page of their session were ignored",
        } < set(counted.notes), seed


@pytest.mark.slow
def test_empty_and_bad_lines_between_clicks_do_not_matter(tmp_path):
    (tmp_path / "good").write_text(sessions(0))
    for line in ("", "oops", "7", "7\t0"):
        (tmp_path / "log").write_text(sessions(0).replace("\n", f"\n{line}\n"))
        assert same(counts(tmp_path / "log", skip_bad=bool(line)), counts(tmp_path / "good")), line


def test_a_click_belongs_to_the_last_page_that_shows_the_url(tmp_path):
    log = tmp_path / "log"
    log.write_text("5\t0\tQ\t1\t0\t7\t8\n5\t1\tQ\t2\t0\t8\t9\n5\t2\tC\t8\n5\t3\tC\t7\n5\t4\tC\t8\n5\t5\tC\t99\n")
    counted = counts(log)
    assert as_dictionaries(counted)[1] == {("2_0", "8", 1): 1, ("1_0", "7", 1): 1}
    assert counted.notes == ("1 click on urls that their page does not show were ignored",)


def test_a_url_twice_on_a_page_is_clicked_where_it_comes_first(tmp_path):
    (tmp_path / "log").write_text("1_0\t7,8,7 : 7 , 7 , 99;")
    counted = counts(tmp_path / "log")
    assert as_dictionaries(counted) == (
        {("1_0", "7", 1): 1, ("1_0", "8", 2): 1, ("1_0", "7", 3): 1},
        {("1_0", "7", 1): 1},
    )
    assert counted.notes == (
        "1 click on urls that their page does not show were ignored",
        "1 page with a url twice: every impression of it is counted, and clicks count for the first",
    )


def test_sessions_may_alternate(tmp_path):
    (tmp_path / "log").write_text("1\t0\tQ\t1\t0\t7\n2\t0\tQ\t1\t0\t8\n1\t1\tC\t7\n2\t1\tC\t8\n")
    counted = counts(tmp_path / "log")
    assert (counted.pages, counted.clicked.sum(), counted.notes) == (2, 2, ())


@pytest.mark.slow
def test_a_byte_order_mark_is_no_part_of_a_log(tmp_path):
    for text in (sessions(3), "1_0\t7,8 : 7;\n1_0\t7 :;", TIDY):
        (tmp_path / "plain").write_text(text)
        (tmp_path / "marked").write_text(text, encoding="utf-8-sig")
        assert same(counts(tmp_path / "marked"), counts(tmp_path / "plain"))


@pytest.mark.slow
def test_empty_lines_before_a_header_are_passed_over(tmp_path, tidy):
    for lines in ("\n\n", "\ufeff\n", "\r\n\r\n"):
        text = TIDY.replace("\n", "\r\n") if "\r" in lines else TIDY
        (tmp_path / "late").write_bytes((lines + text).encode())
        assert same(counts(tmp_path / "late"), counts(tidy))
        (tmp_path / "more").write_text(other(1).replace("\n1,", "\n4,"))
        assert counts([tmp_path / "late", tmp_path / "more"]).pages == 4
        (tmp_path / "late").write_bytes((lines + text + "7,first,a,1" + text[-2:].lstrip("0")).encode())
        with pytest.raises(ValueError, match=f"line {lines.count(chr(10)) + 8}: position"):
            counts(tmp_path / "late")


def test_lines_may_end_as_on_windows_and_the_last_one_not_at_all(tmp_path):
    (tmp_path / "unix").write_text(sessions(2))
    (tmp_path / "other").write_bytes(sessions(2).rstrip("\n").replace("\n", "\r\n").encode())
    assert same(counts(tmp_path / "unix"), counts(tmp_path / "other"))


# Filters


def test_pages_made_only_of_the_most_frequent_items_are_kept(tidy):
    counted = counts(tidy, top_items=2)
    assert counted.items == ("a", "b")
    assert counted.pages == 2
    assert counted.shown.sum() == 4


def test_pages_are_cut_before_frequent_items_are_looked_for(tidy):
    counted = counts(tidy, positions=1, top_items=1)
    assert (counted.items, counted.positions, counted.pages) == (("a",), (1,), 2)


@pytest.mark.slow
def test_where_rows_form_no_pages_the_rows_of_frequent_items_are_kept(tmp_path):
    path = write(tmp_path / "log.csv", pages=500, layout="obd")
    counted = counts(path, top_items=3)
    assert len(counted.items) == 3
    assert counted.pages is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["log.csv", "log.parquet", "log.tsv"])
def test_a_query_is_kept_alone(tmp_path, name):
    layout = "relpred" if name == "log.tsv" else "tidy"
    path = write(tmp_path / name, pages=600, queries=3, layout=layout)
    everything = counts(path)
    one = counts(path, query=everything.queries[1])
    assert one.queries == everything.queries[1:2]
    two = counts(path, query=everything.queries[:2])
    assert two.shown.sum() == everything.shown[everything.query < 2].sum()
    assert 0 < one.pages < two.pages < everything.pages


@pytest.mark.slow
def test_every_layout_with_pages_filters_alike(tmp_path):
    text = write(tmp_path / "log.tsv", pages=1000, layout="relpred")
    for name, layout in (("a.parquet", "tidy"), ("a.ndjson", "tidy"), ("b.parquet", "service"), ("c.txt", "yandex")):
        table = write(tmp_path / name, pages=1000, layout=layout)
        for options in ({"top_items": 8}, {"top_items": 8, "positions": 3}, {"positions": 2}):
            one, other = counts(table, **options), counts(text, **options)
            assert (one.pages, one.items) == (other.pages, other.items), (layout, options)
            assert one.shown.tolist() == other.shown.tolist(), (layout, options)
            assert one.clicked.tolist() == other.clicked.tolist(), (layout, options)


def test_a_filter_that_keeps_nothing_is_an_error(tidy):
    with pytest.raises(ValueError, match=r"nothing is left of log\.csv"):
        counts(tidy, query="elsewhere")


# Real logs


@pytest.mark.slow
@needs_real_logs
def test_both_yandex_layouts_give_identical_counts():
    for one, other in (("trainSample", "relpred_train.tsv"), ("testSample", "relpred_test.tsv")):
        native, challenge = counts(ROOT / "yandex" / one), counts(ROOT / "yandex" / other)
        assert same(native, challenge)
        assert native.notes == challenge.notes


@pytest.mark.slow
@needs_real_logs
def test_the_papers_filter_keeps_641_pages():
    counted = counts(ROOT / "yandex" / "trainSample", top_items=10)
    assert counted.pages == 641
    assert len(counted.items) == 10


@pytest.mark.slow
@needs_real_logs
def test_the_most_frequent_query_keeps_23185_pages_of_both_samples():
    both = [ROOT / "yandex" / name for name in ("trainSample", "testSample")]
    assert counts(both, query="9982_0", positions=5, top_items=10).pages == 23_185
    assert counts(both[0], query="9982_0", positions=5, top_items=10).pages == 19_562


@pytest.mark.slow
@needs_real_logs
def test_counts_with_too_many_clicks_are_refused_clipped_or_skipped():
    table = ROOT / "yandex_counts" / "counts.csv"
    with pytest.raises(ValueError, match=r"counts.csv, line 95: Click must not be more than impressions; got '66199'"):
        counts(table)
    clipped, skipped = counts(table, clip=True), counts(table, skip_bad=True)
    assert (clipped.shown.sum(), len(clipped)) == (24_726_798, 6144)
    assert clipped.notes == ("38 rows had more clicks than impressions; clicks were clipped to impressions",)
    assert len(skipped) == 6144 - 38
    assert skipped.notes == ("38 rows were skipped: Click must not be more than impressions",)


@pytest.mark.slow
@needs_real_logs
def test_the_open_bandit_dataset_is_read_with_propensities():
    log = read(ROOT / "obd" / "random_all.csv")
    assert (log.layout, log.has_propensities, log.has_pages) == ("obd", True, False)
    assert counts(log).shown.sum() == 10_000
    assert counts(log).clicked.sum() == 38


# Ways to hand over a log


@pytest.mark.slow
def test_files_patterns_and_folders_are_read_as_one_log(tmp_path):
    table = pyarrow.csv.read_csv(generate(tmp_path / "all.csv", "paper/stochastic", 400))
    parts = tmp_path / "parts"
    parts.mkdir()
    for k in range(4):
        pyarrow.parquet.write_table(table.slice(k * 501, 501), parts / f"part-{k}.parquet")
    whole = counts(tmp_path / "all.csv")
    assert whole.pages == 400
    for path in (parts, str(parts / "part-*.parquet"), sorted(parts.iterdir())):
        assert same(counts(path), whole)


def other(click):
    """A log of one row."""
    return f"event,position,item,click\n1,1,a,{click}\n"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "decoy"), [("log[1].csv", "log1.csv"), ("a*.csv", "ab.csv"), ("a?.csv", "ab.csv")])
def test_a_file_whose_name_is_a_pattern_is_read(tmp_path, name, decoy):
    (tmp_path / name).write_text(other(1))
    (tmp_path / decoy).write_text(other(0))
    assert counts(tmp_path / name).clicked.tolist() == [1]
    (tmp_path / name).write_text(other(9))
    with pytest.raises(ValueError, match="line 2: click must be 0 or 1"):
        counts(tmp_path / name)
    (tmp_path / name).write_text(other("0,7"))
    with pytest.raises(ValueError, match="line 2: the line has more columns"):
        counts(tmp_path / name)


@pytest.mark.parametrize("ending", ["csv", "ndjson", "parquet"])
def test_folders_do_not_overwrite_columns(tmp_path, ending):
    (tmp_path / "query=elsewhere").mkdir()
    path = generate(tmp_path / "query=elsewhere" / f"log.{ending}", "paper/stochastic", 100, queries=2)
    assert counts(path).queries == ("1", "2")


def test_hidden_files_of_a_folder_are_not_read(tmp_path, tidy):
    for folder in (".old", "_temporary/0", "parts/.git"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "log.csv").write_text(TIDY)
    assert find_files(tmp_path) == (tidy,)


def test_a_file_named_twice_is_read_once(tmp_path, tidy):
    other = tmp_path / "parts" / "more.csv"
    other.parent.mkdir()
    other.write_text(TIDY.replace("\n", "\n9").removesuffix("9"))
    assert find_files([tidy, other.parent, other, tmp_path / "parts" / ".." / "log.csv"]) == (tidy, other)


@pytest.mark.slow
def test_packed_and_plain_files_mix(tmp_path, tidy):
    packed = tmp_path / "more"
    packed.write_bytes(
        gzip.compress(TIDY.replace("\n1,", "\n4,").replace("\n2,", "\n5,").replace("\n3,", "\n6,").encode())
    )
    assert counts([tidy, packed]).shown.tolist() == [2 * n for n in counts(tidy).shown]
    assert counts([tidy, packed]).pages == 6


@pytest.mark.slow
def test_gzip_members_one_after_another_are_one_file(tmp_path):
    text = sessions(3).encode()
    middle = text.index(b"\n", 3000) + 1
    (tmp_path / "one").write_bytes(text)
    (tmp_path / "two").write_bytes(gzip.compress(text[:middle]) + gzip.compress(text[middle:]))
    assert same(counts(tmp_path / "one"), counts(tmp_path / "two"))


@pytest.mark.slow
def test_rows_are_those_that_are_counted(tmp_path):
    log = read(
        generate(tmp_path / "log.ndjson", "paper/stochastic", 800, queries=2), positions=3, top_items=15, query="2"
    )
    rows = rows_of(log)
    assert set(rows.columns) == {"event", "query", "item", "position", "click", "propensity", "reason"}
    shown, clicked = rows.aggregate("count(*), sum(click)").fetchall()[0]
    assert rows.project("query, propensity").distinct().fetchall() == [("2", 0.1)]
    assert (shown, clicked) == (counts(log).shown.sum(), counts(log).clicked.sum())
    assert shown == 3 * counts(log).pages


@pytest.mark.slow
def test_service_rows_without_learning_are_counted_without_propensity(tmp_path):
    rows = [
        {"event": "a", "segment": "s", "arm": arm, "policy_id": "p", "position": k, "item": f"i{k}", "click": k == 0,
         "propensity": 0.5, "pinned": False, "learn": k == 0, "surface": "home", "timestamp": "2024-01-01"}
        for k, arm in enumerate(("learner", "holdout"))
    ]  # fmt: skip
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "export.parquet")
    log = read(tmp_path / "export.parquet")
    assert log.layout == "service"
    assert counts(log).shown.tolist() == [1, 1]
    assert counts(log).queries == ("s",)
    assert rows_of(log).project("item, click, propensity").fetchall() == [("i0", 1, 0.5), ("i1", 0, None)]


@pytest.mark.parametrize(("value", "learned"), [("FALSE", False), (" False ", False), ("0", False), ("True", True)])
def test_the_learn_column_of_the_service_accepts_several_spellings(tmp_path, value, learned):
    header = "event,segment,arm,policy_id,position,item,click,propensity,learn"
    (tmp_path / "export.csv").write_text(f"{header}\ne,s,learner,p,0,a,1,0.5,{value}\n")
    assert rows_of(read(tmp_path / "export.csv")).project("propensity").fetchall() == [(0.5 if learned else None,)]


@pytest.mark.parametrize("value", ["", "no", "2"])
def test_a_bad_learn_column_of_the_service_is_refused(tmp_path, value):
    header = "event,segment,arm,policy_id,position,item,click,propensity,learn"
    (tmp_path / "export.csv").write_text(f"{header}\ne,s,learner,p,0,a,1,0.5,{value}\n")
    with pytest.raises(ValueError, match="line 2: learn must be true or false"):
        counts(tmp_path / "export.csv")


# Keys and labels


def lines(*rows):
    """Rows as NDJSON."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def row(event=1, **others):
    """A row of the tidy layout."""
    return {"event": event, "position": 1, "item": "a", "click": 1, **others}


@pytest.mark.slow
def test_a_key_that_only_some_lines_have_is_read(tmp_path):
    (tmp_path / "log").write_text(lines(row(1), row(2, query="tea"), row(3, propensity=0.5, note="x")))
    log = read(tmp_path / "log")
    assert log.has_propensities
    assert counts(log).queries == ("", "tea")
    assert rows_of(log).order("event").project("query, propensity").fetchall() == [
        ("", None),
        ("tea", None),
        ("", 0.5),
    ]


def test_parts_of_json_may_differ_in_unused_keys(tmp_path):
    (tmp_path / "one").write_text(lines(row(1)))
    (tmp_path / "two").write_text(lines(dict(reversed(row(2, note="x").items()))))
    assert counts([tmp_path / "one", tmp_path / "two"]).pages == 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pyarrow.float64(), pyarrow.float32(), pyarrow.decimal128(9, 2)], ids=str)
def test_whole_labels_have_no_point_in_any_kind_of_file(tmp_path, kind):
    whole = {"position": [1, 1], "item": [5, 7], "query": [3, 3], "click": [1, 0]}
    pyarrow.parquet.write_table(pyarrow.table(whole), tmp_path / "whole")
    table = pyarrow.table({name: pyarrow.array(values, pyarrow.int16()).cast(kind) for name, values in whole.items()})
    pyarrow.parquet.write_table(table, tmp_path / "pointed")
    assert counts(tmp_path / "pointed").items == ("5", "7")
    assert same(counts(tmp_path / "pointed"), counts(tmp_path / "whole"))
    both = counts([tmp_path / "pointed", tmp_path / "whole"], query=3)
    assert (both.items, both.shown.tolist(), both.clicked.tolist()) == (("5", "7"), [2, 2], [2, 0])


def test_a_label_that_is_not_whole_keeps_its_point(tmp_path):
    columns = {"position": [1, 1], "item": [5.5, 1e300], "click": [1, 0]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "log")
    assert set(counts(tmp_path / "log").items) == {"1e+300", "5.5"}


@pytest.mark.slow
def test_spaces_after_commas_do_not_matter(tmp_path, tidy):
    (tmp_path / "log").write_text(TIDY.replace(",", ", "))
    assert same(counts(tmp_path / "log"), counts(tidy))


def test_parts_may_be_divided_by_different_marks(tmp_path, tidy):
    (tmp_path / "more").write_text(TIDY.replace("\n", "\n9").removesuffix("9").replace(",", ";"))
    assert counts([tidy, tmp_path / "more"]).pages == 6


@pytest.mark.slow
def test_queries_may_be_given_as_numbers(tmp_path):
    path = generate(tmp_path / "log.parquet", "paper/stochastic", 300, queries=3)
    assert same(counts(path, query=2), counts(path, query="2"))
    assert same(counts(path, query=[1, "3"]), counts(path, query=["1", "3"]))


def test_duckdb_keeps_its_progress_bar_off_standard_output():
    shown = Database().connection.execute("SELECT current_setting('enable_progress_bar_print')").fetchall()
    assert shown == [(False,)]
