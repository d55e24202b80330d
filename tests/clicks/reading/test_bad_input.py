"""Bad input: the file, the line and the reason, or a count of what was skipped; never a silent number."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest

from bothworlds.clicks import Counts, fit
from tests.clicks.written import counts
from tests.commands import run

PAGE = "event,position,item,click,propensity\n1,1,a,0,0.5\n1,2,b,1,0.5\n"


def write(tmp_path, text, name="log"):
    (tmp_path / name).write_text(text)
    return tmp_path / name


def error_of(path, **options):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the caller checks the message
        counts(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def refused(path, **options):
    """The error for one bad row, record or page, without the advice, which must be there."""
    message, advice = error_of(path, **options).rsplit("; ", 1)
    assert advice == "skip_bad=True leaves it out"
    return message


BAD_ROWS = {
    "2,1,a,2,0.5": "line 4: click must be 0 or 1; got '2'",
    "2,1,a,yes,0.5": "line 4: click must be 0 or 1; got 'yes'",
    "2,1,a,,0.5": "line 4: click must be 0 or 1",
    "2,1,a,0.5,0.5": "line 4: click must be 0 or 1; got '0.5'",
    "2,1,,0,0.5": "line 4: item must not be missing",
    "2,-1,a,0,0.5": "line 4: position must be a whole number from 0 up; got '-1'",
    "2,1.5,a,0,0.5": "line 4: position must be a whole number from 0 up; got '1.5'",
    "2,first,a,0,0.5": "line 4: position must be a whole number from 0 up; got 'first'",
    "2,99999999999,a,0,0.5": "line 4: position must be at most 10,000; got '99999999999'",
    "2,1000000,a,0,0.5": "line 4: position must be at most 10,000; got '1000000'",
    "2,1,a,0,0": "line 4: propensity must be above 0 and at most 1; got '0'",
    "2,1,a,0,1.01": "line 4: propensity must be above 0 and at most 1; got '1.01'",
    "2,1,a,0,nan": "line 4: propensity must be above 0 and at most 1; got 'nan'",
    "2,1,a,0,half": "line 4: propensity must be above 0 and at most 1; got 'half'",
    ",1,a,0,0.5": "line 4: event must not be missing",
    "2,1,a": "line 4: the line has fewer columns than the table, in '2,1,a'",
    "2,1,a,0,0.5,7": "line 4: the line has more columns than the table, in '2,1,a,0,0.5,7'",
}


@pytest.mark.slow
@pytest.mark.parametrize(("row", "message"), BAD_ROWS.items())
def test_a_bad_row_is_refused_by_file_line_and_reason_or_skipped_and_counted(tmp_path, row, message):
    path = write(tmp_path, f"{PAGE}{row}\n3,1,a,0,0.5\n")
    assert refused(path).startswith(f"{path}, {message}")
    skipped = counts(path, skip_bad=True)
    assert skipped.shown.sum() == 3
    assert len(skipped.notes) == 1
    assert skipped.notes[0].startswith(("1 row was skipped: ", "1 line was skipped: "))


def test_lines_are_skipped_for_reasons_of_their_own(tmp_path):
    text = f'{PAGE}2,1,a\n3,1,a\n2,1,a,0,0.5,7\n4,1,"a"x,1,0.5\n'.encode() + b"5,1,\xff,1,0.5\n"
    (tmp_path / "log").write_bytes(text)
    assert counts(tmp_path / "log", skip_bad=True).notes == (
        "1 line was skipped: it has characters that are not UTF-8",
        "2 lines were skipped: they have fewer columns than the table",
        "1 line was skipped: it has more columns than the table",
        "1 line was skipped: it has a quote out of place or not closed",
    )


def test_the_same_rows_without_the_bad_one_are_accepted_without_a_word(tmp_path):
    counted = counts(write(tmp_path, f"{PAGE}3,1,a,0,\n"))
    assert (counted.shown.sum(), counted.notes) == (3, ())


def test_the_line_is_right_after_empty_lines_and_quoted_ones(tmp_path):
    path = write(tmp_path, 'event,position,item,click\n\n1,1,"a\nb",0\n\n1,2,b,7\n')
    assert error_of(path).startswith(f"{path}, line 6: click")


def test_the_line_is_right_after_quotes_that_are_letters(tmp_path):
    path = write(tmp_path, 'event;position;item;click\n1;1;5" screen;0\n1;2;"a ""b"";\nc";0\n2;1;d;7\n')
    assert refused(path) == f"{path}, line 5: click must be 0 or 1; got '7'"


def test_the_line_is_right_in_a_packed_file_among_others(tmp_path):
    good = write(tmp_path, PAGE, "a")
    bad = tmp_path / "b"
    bad.write_bytes(gzip.compress(PAGE.replace("\n1,", "\n7,").replace("b,1", "b,3").encode()))
    assert error_of([good, bad]).startswith(f"{bad}, line 3: click")


def test_a_bad_row_of_another_query_does_not_go_unseen(tmp_path):
    path = write(tmp_path, "event,position,item,click,query\n1,1,a,0,x\n2,1,a,9,y\n")
    assert "line 3: click" in error_of(path, query="x")


@pytest.mark.slow
def test_a_page_with_a_position_twice_is_refused_or_skipped(tmp_path):
    path = write(tmp_path, f"{PAGE}2,1,a,0,0.5\n2,1,b,0,0.5\n")
    assert refused(path) == f"{path}, line 4 and line 5: event '2' has position '1' twice"
    skipped = counts(path, skip_bad=True)
    assert (skipped.pages, skipped.shown.sum()) == (1, 2)
    assert skipped.notes == ("1 page left out: a position or an item is there twice",)


def test_the_lines_are_those_of_the_page_and_not_of_one_of_another_query(tmp_path):
    path = write(tmp_path, "event,query,position,item,click\n1,x,1,a,0\n1,y,1,b,0\n1,y,1,c,0\n")
    assert refused(path) == f"{path}, line 3 and line 4: event '1' has position '1' twice"


@pytest.mark.parametrize("event", [np.datetime64("2024-01-01T00:00:00.5", "us"), True, b"\xff"])
def test_a_bad_page_is_located_for_any_type_of_event(tmp_path, event):
    table = pyarrow.table({"event": [event, event], "position": [1, 1], "item": ["a", "b"], "click": [0, 1]})
    pyarrow.parquet.write_table(table, tmp_path / "log.parquet")
    assert "row 1 and " in error_of(tmp_path / "log.parquet")


def test_nothing_is_left_if_all_pages_are_skipped(tmp_path):
    path = write(tmp_path, "event,position,item,click\n1,1,a,0\n1,1,b,0\n")
    assert error_of(path, skip_bad=True).startswith("nothing is left of log")


@pytest.mark.slow
@pytest.mark.parametrize("results", [2, 10, 70])
def test_a_page_with_an_item_twice_is_refused_and_the_same_page_without_is_not(tmp_path, results):
    rows = [f"p,{k},item-{k},0" for k in range(results)]
    good = write(tmp_path, "\n".join(["event,position,item,click", *rows, ""]), "good")
    assert counts(good).pages == 1
    rows[-1] = f"p,{results - 1},item-0,0"
    bad = write(tmp_path, "\n".join(["event,position,item,click", *rows, ""]), "bad")
    assert refused(bad) == f"{bad}, line 2 and line {results + 1}: event 'p' has item 'item-0' twice"


def test_a_label_of_parquet_that_is_no_number_is_missing(tmp_path):
    table = pyarrow.table({"event": [1, 1], "position": [1, 2], "item": [1.0, float("nan")], "click": [0.0, 1.0]})
    pyarrow.parquet.write_table(table, tmp_path / "log.parquet")
    assert refused(tmp_path / "log.parquet").endswith("log.parquet, row 2: item must not be missing; got 'nan'")


@pytest.mark.parametrize("kind", [pyarrow.float64(), pyarrow.float32()])
def test_a_propensity_of_parquet_that_is_no_number_is_bad(tmp_path, kind):
    propensity = pyarrow.array([0.5, float("nan"), 0.25], kind)
    table = pyarrow.table(
        {"position": [1, 1, 1], "item": ["a", "b", "c"], "click": [0, 1, 1], "propensity": propensity}
    )
    pyarrow.parquet.write_table(table, tmp_path / "log.parquet")
    assert refused(tmp_path / "log.parquet").endswith("row 2: propensity must be above 0 and at most 1; got 'nan'")
    assert counts(tmp_path / "log.parquet", skip_bad=True).items == ("a", "c")


def test_bad_rows_of_parquet_are_named_by_row(tmp_path):
    table = pyarrow.table({"event": [1, 1], "position": [1, 2], "item": ["a", None], "click": [False, True]})
    pyarrow.parquet.write_table(table, tmp_path / "log.parquet")
    assert refused(tmp_path / "log.parquet").endswith("log.parquet, row 2: item must not be missing")


@pytest.mark.parametrize("line", ['{"event": 1,', "[1, 2]", "nonsense", '{"other": 3}'])
def test_a_malformed_line_of_json_is_refused_by_line_or_skipped(tmp_path, line):
    good = '{"event": 1, "position": 1, "item": "a", "click": true}\n'
    path = write(tmp_path, f"{good}\n{line}\n{good.replace('1,', '2,', 1)}")
    assert (
        refused(path) == f"{path}, line 3: the line is not a JSON object with the columns of this format; got {line!r}"
    )
    assert counts(path, skip_bad=True).clicked.sum() == 2


BAD_COUNTS = {
    "a,1,10,11": "clicks must not be more than impressions; got '11' and '10'; "
    "clip=True counts as many clicks as impressions",
    "a,1,-1,0": "impressions must be a whole number from 0 up; got '-1'",
    "a,1,10,-1": "clicks must be a whole number from 0 up; got '-1'",
    "a,1,2.5,1": "impressions must be a whole number from 0 up; got '2.5'",
    "a,1,,1": "impressions must be a whole number from 0 up; it is missing",
    "a,x,10,1": "position must be a whole number from 0 up; got 'x'",
}


@pytest.mark.parametrize(("row", "message"), BAD_COUNTS.items())
def test_bad_counts_are_refused_or_skipped(tmp_path, row, message):
    path = write(tmp_path, f"item,position,impressions,clicks\nb,1,10,10\n{row}\n")
    assert refused(path) == f"{path}, line 3: {message}"
    assert counts(path, skip_bad=True).items == ("b",)


def test_more_clicks_than_impressions_are_clipped_only_if_asked_to(tmp_path):
    path = write(tmp_path, "item,position,impressions,clicks\na,1,10,11\nb,1,10,3\n")
    clipped = counts(path, clip=True)
    assert clipped.clicked.tolist() == [10, 3]
    assert clipped.notes[0].startswith("1 row had more clicks than impressions")


GOOD = "1\t0\tQ\t5\t0\t7\t8\n1\t1\tC\t7\n"
SESSION = "SessionID TimePassed Q QueryID RegionID URL... or SessionID TimePassed C URL, between tabs is expected"
BAD_LINES = [
    "2\t0\tQ\t5\t0", "2\t0\tQ\t5\t0\t", "2\t0\tQ\t5\t0\t7\t\t8", "2\t0\tQ\t5 0\t7", "2\t0\tX\t5", "2\t0\tC\t5\t6",
    "2\t0\tC\tfive", "2\t0", "two\t0\tC\t5", "2\t0\tC\t1234567890123456789",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_line_of_a_session_is_refused_or_skipped(tmp_path, line):
    path = write(tmp_path, f"{GOOD}{line}\n3\t0\tQ\t5\t0\t7\n")
    assert refused(path) == f"{path}, line 3: {SESSION}, in {line!r}"
    skipped = counts(path, skip_bad=True)
    assert (skipped.pages, skipped.notes) == (2, ("1 bad record left out",))


NATIVE = "QUERY_REGION, a tab, url,...,url : clicked url , ... ; is expected"
BAD_RECORDS = ["5\t7,8 : 7", "5_0 7,8 : 7", "5_0\t7,8", "5_0\t7,,8 :", "5_0\t : 7", "5_0\t7,8 : 7 8", "5_0\t7,8 : 7 ,"]


@pytest.mark.parametrize("record", BAD_RECORDS)
def test_a_bad_record_of_the_native_layout_is_refused_or_skipped(tmp_path, record):
    path = write(tmp_path, f"1_0\t7,8 : 7; 1_0\t7,8 :\n1_0\t7 :; {record}\n1_0\t7 : 7")
    assert refused(path) == f"{path}, line 2: {NATIVE}, in {record!r}"
    skipped = counts(path, skip_bad=True)
    assert (skipped.pages, skipped.notes) == (4, ("1 bad record left out",))


def test_the_line_of_a_bad_record_is_right_after_lines_that_are_no_text(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(f"{GOOD}\n".encode() + b"2\t0\tC\t\xff\n2\t0\tX\n" + GOOD.encode())
    message = error_of(path)
    assert "line 4: the line has characters that are not UTF-8" in message
    assert f"line 5: {SESSION}, in '2\\t0\\tX'; 2 records are bad" in message


# Files


def test_an_empty_file_is_refused(tmp_path):
    assert error_of(write(tmp_path, "")).endswith("log is empty")
    assert "nothing but empty lines" in error_of(write(tmp_path, "\n\n\n"))


def test_a_header_without_rows_is_refused(tmp_path):
    assert "nothing is left of log: it has no rows" in error_of(write(tmp_path, "item,position,click\n"))


def test_an_empty_path_is_not_the_folder_one_is_in(tmp_path, monkeypatch):
    write(tmp_path, PAGE)
    monkeypatch.chdir(tmp_path)
    assert counts(".").shown.sum() == 2
    assert error_of("").startswith("the path of the log is empty; give a file")


@pytest.mark.parametrize("columns", ["item=product", ["item"]])
def test_columns_must_say_which_is_which(tmp_path, columns):
    assert error_of(write(tmp_path, PAGE), columns=columns).startswith("columns must map names to columns, as in {")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    assert error_of(tmp_path / "no-*.csv").startswith("there is no file at")
    assert error_of([]).startswith("no log was given")


def test_a_binary_file_is_refused(tmp_path):
    (tmp_path / "log").write_bytes(b"\x89PNG\r\n\0\0\0")
    assert error_of(tmp_path / "log").endswith(
        "is neither text nor Parquet; save it as CSV, NDJSON or Parquet, text also packed with gzip or zstd"
    )
    (tmp_path / "log").write_bytes(b"PAR1 but no more")
    assert "cannot be read as one" in error_of(tmp_path / "log")


@pytest.mark.parametrize("skip_bad", [False, True])
@pytest.mark.parametrize("text", [PAGE.replace("0.5\n", "0.5\r\n", 1), PAGE.replace("\n", "\r\n", 1)])
def test_lines_that_end_in_different_ways_are_refused_by_file(tmp_path, text, skip_bad):
    (tmp_path / "log").write_bytes(text.encode())
    message = error_of(tmp_path / "log", skip_bad=skip_bad)
    assert message.startswith(f"{tmp_path / 'log'} cannot be read: its line endings differ")


def test_lines_that_end_in_a_carriage_return_alone_are_refused(tmp_path):
    (tmp_path / "log").write_bytes(PAGE.replace("\n", "\r").encode())
    assert error_of(tmp_path / "log").endswith(
        "log, line 1: lines must end in a line feed, and no column name may contain a line break"
    )


def test_a_byte_order_mark_before_json_is_refused(tmp_path):
    path = write(tmp_path, '\ufeff{"position": 1, "item": "a", "click": true}\n')
    assert error_of(path).endswith("starts with a byte order mark, which JSON must not have; save it without one")


def test_a_column_that_is_there_twice_is_refused_if_it_is_needed(tmp_path):
    path = write(tmp_path, "item,position,click,Click\na,1,0,1\n")
    assert error_of(path) == f"{path} has the columns click and Click, where one is expected; rename the others"
    path = write(tmp_path, '{"item": "a", "position": 1, "click": 0}\n{"item": "a", "position": 1, "Click": 0}\n')
    assert "has the columns click and Click" in error_of(path)
    assert counts(write(tmp_path, "item,position,click,note,Note,note\na,1,0,x,y,z\n")).items == ("a",)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_text_in_latin_1_is_refused_with_a_way_to_read_it(tmp_path, encoding):
    """Leaving out bad rows would leave out exactly those with umlauts."""
    (tmp_path / "log").write_bytes("item,position,click\na,1,1\nmüsli,1,0\n".encode(encoding))
    message = error_of(tmp_path / "log")
    assert "line 3: the line has characters that are not UTF-8; the file seems to be in Latin-1" in message
    assert "iconv -f WINDOWS-1252 -t UTF-8" in message
    assert "skip" not in message
    (tmp_path / "json").write_bytes('{"item": "a", "position": 1, "click": 1}\n{"item": "müsli"}\n'.encode(encoding))
    assert "line 2: the line has characters that are not UTF-8; the file seems to be" in error_of(tmp_path / "json")
    frame = pandas.read_csv(tmp_path / "log", encoding="cp1252")
    assert counts(frame).items == ("a", "müsli")


def test_text_in_utf_16_is_named(tmp_path):
    (tmp_path / "log").write_text("item,position,click\na,1,1\n", encoding="utf-16")
    assert error_of(tmp_path / "log").startswith(f"{tmp_path / 'log'} is in UTF-16; save it as UTF-8")


@pytest.mark.parametrize("row", ["a;1;1;0,5", "a;1,0;1;0.5", "a;1;1,0;0.5"])
def test_decimal_commas_are_refused_with_a_way_to_read_them(tmp_path, row):
    path = write(tmp_path, f"item;position;click;propensity\n{row}\n")
    message = error_of(path)
    assert "which has a decimal comma; write numbers with a decimal point" in message
    assert "skip" not in message
    assert counts(pandas.read_csv(path, sep=";", decimal=",")).items == ("a",)


@pytest.mark.parametrize(
    ("option", "value"), [("top_items", 0), ("positions", -1), ("positions", 2.5), ("top_items", True)]
)
def test_filters_must_be_whole_numbers(tmp_path, option, value):
    assert error_of(write(tmp_path, PAGE), **{option: value}).startswith(f"{option} must be a whole number")


@pytest.mark.parametrize(
    "text",
    ['[{"position": 1, "item": "a", "click": 1}]', '{\n"a": [\n1]}', '{"a":\n 1}', '{"a": "' + 70_000 * "x" + '"}'],
)
def test_a_document_of_json_is_no_log(tmp_path, text):
    assert error_of(write(tmp_path, text)).endswith(
        "is one JSON document or malformed; a log in JSON has an object for every result, each on a line"
    )


@pytest.mark.slow
@pytest.mark.parametrize("line", ['{"position" 1}', '{"position": 1, "it', 'tion": 1, "item": "a"}', "nonsense"])
def test_a_first_line_that_is_broken_is_no_document(tmp_path, line):
    path = write(tmp_path, line + '\n{"position": 1, "item": "a", "click": 1}\n')
    assert (
        refused(path) == f"{path}, line 1: the line is not a JSON object with the columns of this format; got {line!r}"
    )
    assert counts(path, skip_bad=True).shown.tolist() == [1]


def test_json_may_start_with_spaces(tmp_path):
    path = write(tmp_path, ' {"position": 1, "item": "a", "click": 1}\n')
    assert counts(path).shown.tolist() == [1]
    assert error_of(write(tmp_path, ' [{"position": 1}]\n')).endswith("each on a line")


def test_lines_that_are_all_broken_are_no_log(tmp_path):
    path = write(tmp_path, '{"position" 1}\n{"position" 2}\n')
    assert error_of(path).endswith("each on a line")


@pytest.mark.slow
def test_a_fitted_model_is_no_log(tmp_path):
    path = fit(Counts.from_tables([[9, 9]], [[3, 2]])).save(tmp_path / "model.json")
    assert "is a fitted model and not a log; bothworlds play --world" in error_of(path)


@pytest.mark.slow
@pytest.mark.parametrize("text", [PAGE, "0\t0\tQ\t1\t0\t5\t6\n" * 50_000])
def test_a_packed_file_that_ends_too_early_is_named(tmp_path, text):
    whole = gzip.compress((text * 20).encode())
    for end in (len(whole) // 2, len(whole) - 4):
        (tmp_path / "cut.gz").write_bytes(whole[:end])
        assert "cut.gz" in error_of(tmp_path / "cut.gz")


def test_an_unknown_engine_is_refused(tmp_path):
    assert error_of(write(tmp_path, PAGE), engine="abacus") == "there is no engine 'abacus'; there are duckdb and ray"


def test_a_query_of_text_logs_is_named_with_its_region(tmp_path):
    assert counts(write(tmp_path, GOOD), query="5_0").pages == 1
    assert "there is no query '5'" in error_of(write(tmp_path, GOOD), query="5")


@pytest.mark.parametrize("number", ["1.000", "12.345", "1.000.000", "' 1.000'"])
def test_a_point_between_thousands_is_refused(tmp_path, number):
    text = f"item;position;impressions;clicks\ntea;1;900;9\nmilk;1;{number.strip(chr(39))};0\n"
    message = refused(write(tmp_path, text))
    assert "line 3: impressions must be a whole number from 0 up; got" in message
    assert message.endswith("; write numbers without thousands separators")
    assert counts(write(tmp_path, text), skip_bad=True).shown.tolist() == [900]


def test_large_counts_keep_all_digits(tmp_path):
    text = "item,position,impressions,clicks\ntea,1,9007199254740993,1.0\nmilk,1,1000.000,1e2\n"
    counted = counts(write(tmp_path, text))
    assert (counted.shown.tolist(), counted.clicked.tolist()) == ([1000, 9007199254740993], [100, 1])


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e20, 2.5, "7"])
def test_tables_of_invalid_counts_are_refused(number):
    with pytest.raises(ValueError, match="impressions and clicks must be "):
        Counts.from_tables(np.array([[number, 5], [5, 5]]), [[0, 1], [1, 1]])


# Several bad places


@pytest.mark.slow
def test_the_first_bad_rows_are_shown_and_all_are_counted(tmp_path):
    bad = "2,1,a,7,0.5\n2,1,a\n3,1,a,0,0.5\n4,x,a,0,0.5\n5,1,a,8,0.5\n"
    path = write(tmp_path, PAGE + bad)
    assert error_of(path) == (
        f"{path}, line 4: click must be 0 or 1; got '7'; line 5: the line has fewer columns than the table, in "
        "'2,1,a'; line 7: position must be a whole number from 0 up; got 'x'; 4 rows are bad; "
        "skip_bad=True leaves them out"
    )
    assert counts(path, skip_bad=True).shown.sum() == 3


def test_bad_rows_of_several_files_are_shown_with_their_files(tmp_path):
    one, other = write(tmp_path, f"{PAGE}2,1,a,7,0.5\n", "a"), write(tmp_path, PAGE.replace("1,2,b,1", "1,2,b"), "b")
    assert error_of([one, other]) == (
        f"{one}, line 4: click must be 0 or 1; got '7'; {other}, line 3: the line has fewer columns than "
        "the table, in '1,2,b,0.5'; 2 rows are bad; skip_bad=True leaves them out"
    )


def test_the_first_bad_pages_are_shown_and_all_are_counted(tmp_path):
    rows = "".join(f"{k},1,a,0,0.5\n{k},1,b,0,0.5\n" for k in (20, 3, 100, 4))
    path = write(tmp_path, PAGE + rows)
    message = [
        f"line {line} and line {line + 1}: event '{event}' has position '1' twice"
        for line, event in ((6, 3), (10, 4), (4, 20))
    ]
    assert error_of(path) == f"{path}, {'; '.join(message)}; 4 pages are bad; skip_bad=True leaves them out"


def test_the_first_bad_records_are_shown_and_all_are_counted(tmp_path):
    bad = "".join(f"{k}\t0\tQ\t5\t0\t7\n{k}\t0\tX\n" for k in range(10))
    path = write(tmp_path, GOOD + bad)
    message = "; ".join(f"line {line}: {SESSION}, in '{k}\\t0\\tX'" for k, line in enumerate((4, 6, 8)))
    assert error_of(path) == f"{path}, {message}; 10 records are bad; skip_bad=True leaves them out"
    assert counts(path, skip_bad=True).notes[-1] == "10 bad records left out"


@pytest.mark.slow
def test_commands_name_their_flags_and_python_its_arguments(tmp_path):
    path = write(tmp_path, PAGE.replace("b,1", "b,7"))
    for command in (("fit", path), ("evaluate", path, "--ranking", "a,b")):
        result = run(*command)
        assert result.exit_code == 2
        assert "line 3: click must be 0 or 1; got '7'; --skip-bad leaves it out" in result.output
    assert "; skip_bad=True leaves it out" in error_of(path)
    path = write(tmp_path, "item,position,impressions,clicks\na,1,10,11\n")
    result = run("fit", path)
    assert "--clip counts as many clicks as impressions; --skip-bad leaves it out" in result.output


def test_bad_rows_are_counted_in_the_whole_log(tmp_path):
    path = write(tmp_path, "event,position,item,click,query\n1,1,a,0,x\n2,1,a,9,y\n3,1\n")
    assert counts(path, query="x", skip_bad=True).notes == (
        "1 line was skipped (in the whole log, for all queries): it has fewer columns than the table",
        "1 row was skipped (in the whole log, for all queries): click must be 0 or 1",
    )


# What may be a mistake


@pytest.mark.slow
def test_positions_after_a_gap_are_noted_and_others_are_not(tmp_path):
    path = write(tmp_path, f"{PAGE}2,1,a,0,0.5\n2,500,b,0,0.5\n")
    assert counts(path).notes == (
        "positions jump from 2 to 500, with 1 impressions from 500 on; the model has no positions in between: check "
        "that this is not a mistake",
    )
    assert counts(path, positions=2).notes == ()


@pytest.mark.slow
def test_a_page_may_have_ten_thousand_results_and_no_more(tmp_path):
    for layout, start, between, end in (("relpred", "1\t0\tQ\t5\t0\t", "\t", ""), ("yandex", "5_0\t", ",", " :")):
        path = write(tmp_path, start + between.join(map(str, range(10_000))) + end + "\n")
        assert counts(path, format=layout).positions[-1] == 10_000
        path = write(tmp_path, start + between.join(map(str, range(10_001))) + end + "\n")
        assert "line 1: a result page has at most 10,000 results, in " in error_of(path, format=layout)


SPACED = {"event": ["1", "1", "2"], "position": [1, 2, 1], "item": ["tea", " milk ", "tea\u00a0"], "click": [0, 1, 1]}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "ndjson", "parquet", "memory"])
def test_spaces_around_names_are_removed_in_all_tables_alike(tmp_path, kind):
    rows = list(zip(*SPACED.values()))
    path = tmp_path / "log"
    if kind == "csv":
        path.write_text("\n".join([",".join(SPACED), *(",".join(map(str, row)) for row in rows), ""]))
    elif kind == "ndjson":
        path.write_text("".join(json.dumps(dict(zip(SPACED, row))) + "\n" for row in rows))
    else:
        pyarrow.parquet.write_table(pyarrow.table(SPACED), path)
    counted = counts(SPACED if kind == "memory" else path)
    assert counted.items == ("milk", "tea")
    assert counted.notes == ()


def test_spaces_around_names_that_are_given_are_removed_too():
    table = {**SPACED, "query": ["q ", "q", "r"]}
    assert counts(table, query=" q").shown.sum() == 2
