"""Layouts: detected from the content of a file, or named and then checked."""

from __future__ import annotations

import pytest

from bothworlds.clicks import read
from bothworlds.clicks.reading.layouts import LAYOUTS, layout_of
from tests.clicks import written
from tests.clicks.real import ROOT, needs_real_logs
from tests.clicks.written import counts

ENDINGS = {
    "tidy": (".csv", ".csv.gz", ".csv.zst", ".ndjson", ".ndjson.zst", ".parquet"),
    "counts": (".csv", ".ndjson", ".parquet"),
    "obd": (".csv", ".ndjson.gz", ".parquet"),
    "service": (".csv", ".ndjson", ".parquet"),
    "relpred": (".tsv", ".tsv.gz"),
    "yandex": (".txt", ".txt.gz"),
}
EVERY = [(layout, ending) for layout, endings in ENDINGS.items() for ending in endings]


def write(tmp_path, text, name="log"):
    (tmp_path / name).write_text(text)
    return tmp_path / name


@pytest.mark.parametrize(("layout", "ending"), EVERY)
def test_a_layout_is_detected_for_any_file_name(tmp_path, layout, ending):
    path = written.write(tmp_path / f"log{ending}", layout=layout)
    hidden = path.rename(tmp_path / "a log without an ending")
    assert read(hidden).layout == layout
    counted = counts(hidden)
    assert counted.shown.sum() == 1500
    assert counted.items == tuple(map(str, range(10)))


def test_positions_of_the_service_count_from_one_as_in_other_logs(tmp_path):
    for layout in ("tidy", "service"):
        path = written.write(tmp_path / f"{layout}.csv", layout=layout)
        assert counts(path).positions == (1, 2, 3, 4, 5)


@pytest.mark.parametrize(("layout", "ending"), [(layout, endings[0]) for layout, endings in ENDINGS.items()])
def test_only_the_right_name_is_accepted(tmp_path, layout, ending):
    path = written.write(tmp_path / f"log{ending}", pages=50, layout=layout)
    assert read(path, layout).layout == layout
    for other in set(LAYOUTS) - {layout}:
        with pytest.raises(ValueError, match=f"is not in the format {other}: it"):
            read(path, other)


def test_spaces_around_commas_of_the_native_layout_do_not_matter(tmp_path):
    (tmp_path / "log").write_text("5_0\t7 , 8 : 8 , 7 ;\n5_0\t8,7:8;\n")
    assert read(tmp_path / "log").layout == "yandex"
    assert counts(tmp_path / "log").clicked.tolist() == [1, 0, 1, 1]


def test_an_unknown_format_is_refused_with_a_list():
    with pytest.raises(ValueError, match="there is no format 'jandex'; there are tidy, counts, obd"):
        layout_of("jandex")


def test_a_file_in_no_known_format_is_refused_with_a_list(tmp_path):
    with pytest.raises(ValueError, match="has the columns name, age, which match no format; name them"):
        read(write(tmp_path, "name,age\nada,36\n"))


def test_a_file_that_may_be_two_things_is_refused(tmp_path):
    path = write(tmp_path, "item,item_id,position,click,propensity_score\na,1,1,0,0.5\n")
    with pytest.raises(ValueError, match=r"is ambiguous; name one of: tidy .* obd"):
        read(path)
    assert counts(path, format="obd").items == ("1",)
    assert counts(path, format="tidy").items == ("a",)


def test_files_of_two_layouts_are_no_log(tmp_path):
    one = write(tmp_path, "item,position,click\na,1,0\n", "one")
    two = write(tmp_path, "1_0\t7 : 7;", "two")
    with pytest.raises(ValueError, match=r"these have several: tidy like .*one, yandex like .*two"):
        read([one, two])


def test_files_with_other_columns_are_no_log(tmp_path):
    one = write(tmp_path, "item,position,click\na,1,0\n", "one")
    two = write(tmp_path, "position,item,click\n1,a,0\n", "two")
    with pytest.raises(ValueError, match="must have the same columns"):
        read([one, two])


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_columns_may_be_divided_by_other_marks(tmp_path, delimiter):
    text = "event,position,item,click\n1,1,a,0\n1,2,b,1\n".replace(",", delimiter)
    assert counts(write(tmp_path, text)).clicked.tolist() == [0, 1]


def test_the_names_of_open_bandit_pipeline_are_understood(tmp_path):
    log = read(write(tmp_path, "action,position,reward,pscore\n3,0,1.0,0.25\n4,1,0.0,0.5\n"))
    assert (log.layout, log.has_propensities, log.has_pages) == ("tidy", True, False)
    assert counts(log).clicked.tolist() == [1, 0]


def test_the_other_spelling_of_counts_is_understood(tmp_path):
    text = ",dict_index,pos,Impression,Click,query,url\n0,q_u,6,100,47,q,u\n1,q_u,5,10,0,q,u\n"
    counted = counts(write(tmp_path, text))
    assert (counted.queries, counted.items, counted.positions) == (("q",), ("u",), (5, 6))
    assert counted.shown.tolist() == [10, 100]


def test_values_between_quotes_may_hold_anything(tmp_path):
    text = 'item,position,click\n"a, ""b""",1,0\n"two\nlines",2,1\n'
    assert counts(write(tmp_path, text)).items == ('a, "b"', "two\nlines")


def test_labels_are_ordered_as_numbers_where_they_are_numbers(tmp_path):
    text = "item,position,click\n10,1,0\n9,1,0\nx,1,0\n100,1,0\n"
    assert counts(write(tmp_path, text)).items == ("9", "10", "100", "x")


@needs_real_logs
@pytest.mark.parametrize(
    ("file", "layout"),
    [
        ("yandex/trainSample", "yandex"),
        ("yandex/oneQueryTest", "yandex"),
        ("yandex/relpred_test.tsv", "relpred"),
        ("obd/bts_men.csv", "obd"),
        ("yandex_counts/counts.csv", "counts"),
    ],
)
def test_real_logs_are_recognised(file, layout):
    assert read(ROOT / file, clip=True).layout == layout


PAGES = "position,item,click,impression\n1,tea,1,17\n2,milk,0,17\n1,milk,1,18\n2,tea,0,18\n"


@pytest.mark.slow
def test_numbers_of_impressions_are_not_taken_for_how_many(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(PAGES)
    with pytest.raises(ValueError, match=r"is ambiguous; name one of: tidy .*; counts"):
        read(path)
    assert counts(path, format="tidy").shown.sum() == 4
    assert counts(path, columns={"event": "impression"}).pages == 2
    assert counts(path, format="counts").shown.sum() == 70
    path.write_text(PAGES.replace("impression", "event,impression").replace(",17", ",1,17").replace(",18", ",2,18"))
    assert counts(path).pages == 2
    with pytest.raises(ValueError, match="not in the format counts: it has a column event"):
        read(path, "counts")


def test_counts_with_a_column_of_a_log_are_read_when_named(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("event,item,position,impressions,clicks\nsale,tea,1,9,3\n")
    with pytest.raises(ValueError, match="is ambiguous; name one of: counts"):
        read(path)
    assert counts(path, format="counts").shown.tolist() == [9]


def test_renamed_columns_decide_the_layout(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("item_id,position,click,propensity_score,page\na,1,1,0.5,7\nb,2,0,0.5,7\n")
    assert read(path).layout == "obd"
    log = read(path, columns={"item": "item_id"})
    assert (log.layout, log.has_propensities) == ("tidy", True)
    with pytest.raises(ValueError, match="not in the format obd: it has no column item_id"):
        read(path, "obd", columns={"item": "item_id"})
    with pytest.raises(ValueError, match="not in the format obd: it has no use for event=page"):
        read(path, "obd", columns={"event": "page"})
