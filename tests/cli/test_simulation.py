"""The command line and its simulation commands: output, files, errors and interrupts."""

from __future__ import annotations

import csv
import inspect
import json
import os
import signal
import subprocess
import sys
import time
import warnings
import xml.etree.ElementTree as ElementTree

import numba
import numpy as np
import pytest
import typer

import bothworlds
from bothworlds.arena.result import COLUMNS
from bothworlds.cli import app
from bothworlds.cli.simulation import arena as arena_command
from bothworlds.cli.simulation import arena_worlds
from bothworlds.cli.simulation import play as play_command
from bothworlds.experiments.reproduce import ON_REQUEST, QUESTIONS
from tests.commands import WITH_INTERRUPTS, answer, run

SHORT = ("--rounds", "200", "--replications", "3")


def run_program(*arguments, **options):
    command = [sys.executable, "-m", "bothworlds", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)


# Help


def test_without_arguments_there_is_help():
    assert "Usage" in run().output


def test_help_states_the_purpose_and_a_first_command():
    text = answer("--help")
    for word in (
        "Rank items and learn from clicks",
        "play",
        "arena",
        "policies",
        "worlds",
        "Start with",
        "--rounds 100000",
    ):
        assert word in text


@pytest.mark.slow
def test_the_command_in_the_help_works():
    example = " ".join(answer("--help").partition("Start with:")[2].split())
    assert example.startswith("bothworlds play")
    assert run(*example.split()[1:], "--rounds", "20", "--replications", "2").exit_code == 0


@pytest.mark.parametrize("command", ["play", "arena", "policies", "worlds"])
def test_every_command_has_help(command):
    text = answer(command, "--help")
    assert "Usage" in text
    assert f" {command} " in text


@pytest.mark.parametrize("command", app.registered_commands, ids=lambda command: command.callback.__name__)
def test_lines_of_help_end_with_sentences_because_terminals_wrap_them_again(command):
    lines = [line.strip() for line in command.callback.__doc__.splitlines()[1:]]
    assert all(line.endswith((".", "[/bold]")) for line in lines if line)


def test_the_help_of_play_shows_options_settings_and_an_example():
    text = answer("play", "--help")
    for word in (
        "--policy",
        "--world",
        "--rounds",
        "--replications",
        "--seed",
        "--checkpoints",
        "--jobs",
        "--plot",
        "--save",
    ):
        assert word in text
    for word in (
        "ftrl-pbm:rate=0.25",
        "fixed:ranking=[4,3,2,1,0]",
        "gap=0.01,phase=20000",
        ".svg",
        ".parquet",
        "bothworlds play -p",
    ):
        assert word in text


def test_the_help_of_reproduce_lists_every_question():
    text = answer("reproduce", "--help")
    assert not {name for name in QUESTIONS | ON_REQUEST if name not in text}


def commands(group, *names):
    """Every command and group, by the words that name it."""
    yield names
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, *names, name)


def test_the_help_shows_flags_without_a_type():
    everything = list(commands(typer.main.get_command(app)))
    assert len(everything) > 25
    for names in everything:
        assert "bool" not in answer(*names, "--help").lower().replace("boolean", "bool"), names
    assert "--inform " in answer("play", "--help")


def test_version_is_printed():
    assert answer("--version").strip() == f"bothworlds {bothworlds.__version__}"


# Lists


def test_policies_are_listed_with_their_settings():
    text = answer("policies")
    for name in bothworlds.policies.names():
        assert name in text
    assert "rate=0.5" in text
    assert "uniformly random list" in text
    assert "needs to know" in text


def test_worlds_are_listed_with_their_settings():
    text = answer("worlds")
    for name in bothworlds.worlds.names():
        assert name in text
    assert "gap=0.03" in text
    assert "phase=100000" in text


@pytest.mark.parametrize("listing", ["policies", "worlds"])
def test_lists_fit_a_narrow_terminal_without_losing_names(listing):
    text = answer(listing, width=80)
    assert all(name in text for name in getattr(bothworlds, listing).names())
    assert "…" not in text


# Playing


def test_play_plays_the_default_policy_of_a_ranker():
    ranker = bothworlds.Ranker(["a", "b", "c"], slots=2, seed=0)
    assert ranker.policy.name in answer("play", *SHORT)


def test_play_prints_a_table():
    text = answer("play", "--policy", "uniform", "--policy", "ftrl-pbm", "--world", "paper/stochastic", *SHORT)
    result = bothworlds.play("uniform", "paper/stochastic", 200, replications=3)
    mean, error = result.final()
    assert f"{mean:.4f} ±{error:.4f}" in text
    assert "3 replications" in " ".join(text.split())
    for word in (
        "200 rounds",
        "best of each round",
        "best fixed list",
        "2.0877",
        "ftrl-pbm",
        "stochastic",
    ):
        assert word in text


def test_short_options_are_the_same():
    long = answer(
        "play",
        "--policy",
        "uniform",
        "--world",
        "yandex/stochastic",
        "--rounds",
        "50",
        "--replications",
        "2",
        "--jobs",
        "1",
    )
    short = answer("play", "-p", "uniform", "-w", "yandex/stochastic", "-T", "50", "-n", "2", "-j", "1")
    assert without_times(long) == without_times(short)


def without_times(text):
    """A table without its last column, the time per round."""
    return ["│".join(line.split("│")[:-2]) for line in text.splitlines() if "│" in line]


def test_one_replication_has_no_standard_error():
    text = answer("play", "-p", "uniform", "--rounds", "50", "--replications", "1")
    assert "±" not in text
    assert "nan" not in text


@pytest.mark.slow
def test_the_seed_is_an_option():
    rows = [without_times(answer("play", "-p", "uniform", *SHORT, "--seed", seed)) for seed in (0, 0, 1)]
    assert rows[0] == rows[1] != rows[2]


def test_a_list_is_a_setting_in_brackets():
    text = answer("play", "-p", "fixed:ranking=[4,3,2,1,0]", *SHORT)
    assert "fixed(ranking=(4, 3, 2, 1, 0))" in text


@pytest.mark.slow
@pytest.mark.parametrize("written", ["2e2", "200", "2_00", "200.0", "2E+2"])
def test_counts_may_be_written_in_several_ways(written):
    text = answer("play", "-p", "uniform", "-T", written, "-n", "3e0", "--seed", "1e0", "--checkpoints", "1e1")
    assert without_times(text) == without_times(answer("play", "-p", "uniform", *SHORT, "--seed", "1"))
    assert "regret in 200 rounds" in answer("bounds", "-w", "paper/stochastic", "--rounds", written)


@pytest.mark.slow
def test_settings_follow_a_colon():
    text = answer(
        "play", "-p", "ftrl-pbm:rate=0.25,tolerance=1e-5", "-w", "paper/periodic-items:gap=0.01,phase=50", *SHORT
    )
    learner = bothworlds.policy("ftrl-pbm", rate=0.25, tolerance=1e-5)
    world = bothworlds.world("paper/periodic-items", gap=0.01, phase=50)
    assert f"{bothworlds.play(learner, world, 200, replications=3).final()[0]:.4f}" in text
    assert "rate=0.25" in text
    assert "gap=0.01, phase=50" in text


@pytest.mark.slow
def test_a_table_of_many_worlds_is_not_truncated():
    arguments = [part for name in bothworlds.worlds.names() for part in ("-w", name)]
    text = answer("play", "-p", "uniform", *arguments, "--rounds", "20", "--replications", "2", width=80)
    assert "…" not in text
    assert text.count("±") == len(bothworlds.worlds.names())


@pytest.mark.slow
def test_an_attack_has_a_table_of_what_it_reached_and_paid():
    text = answer("play", "-p", "uniform", "-w", "attack/quit:rounds=20", "-w", "paper/stochastic", *SHORT)
    result = bothworlds.play("uniform", bothworlds.world("attack/quit", rounds=20), 200, replications=3)
    assert "Attacks" in text
    assert f"{result.attack.share_first().mean():.1%}" in text
    assert f"{result.attack.flips[:, -1].mean():,.0f}" in text
    assert "Attacks" not in answer("play", "-p", "uniform", "-w", "paper/stochastic", *SHORT)


@pytest.mark.slow
def test_a_piped_table_is_complete():
    many = [name for name in bothworlds.worlds.names() if name.startswith(("paper/", "yandex/"))]
    arguments = [part for name in many for part in ("-w", name)]
    text = run_program("play", "-p", "uniform", *arguments, "--rounds", "20", "--replications", "2").stdout
    assert "…" not in text
    assert text.count("±") == len(many) > 5


# Files


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".svg", ".png", ".pdf"])
def test_a_plot_is_drawn_and_the_same_every_time(ending, tmp_path):
    drawn = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}{ending}"
        text = answer(
            "play", "-p", "uniform", "-p", "ftrl-pbm", "-w", "paper/periodic-both:phase=50", *SHORT, "--plot", path
        )
        assert path.name in text
        drawn.append(path.read_bytes())
    assert len(drawn[0]) > 2000
    assert drawn[0] == drawn[1]
    assert b"CreationDate" not in drawn[0]
    assert drawn[0].lstrip().startswith({".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF"}[ending])


@pytest.mark.slow
def test_a_plot_names_its_curves_and_worlds(tmp_path):
    path = tmp_path / "curves.svg"
    worlds = ("paper/stochastic", "paper/periodic-items:phase=50")
    answer("play", "-p", "uniform", "-p", "ftrl-pbm", "-w", worlds[0], "-w", worlds[1], *SHORT, "--plot", path)
    text = " ".join(ElementTree.parse(path).getroot().itertext())
    for word in (
        "uniform",
        "ftrl-pbm",
        "paper/stochastic",
        "paper/periodic-items(phase=50)",
        "rounds",
        "average reward per round",
    ):
        assert word in text
    assert "best fixed list" in text


@pytest.mark.slow
def test_another_seed_is_another_plot(tmp_path):
    for seed in (0, 1):
        answer("play", "-p", "uniform", *SHORT, "--seed", seed, "--plot", tmp_path / f"{seed}.svg")
    assert (tmp_path / "0.svg").read_bytes() != (tmp_path / "1.svg").read_bytes()


def check_rows(rows):
    """The rows equal the results of the same games played here."""
    assert len(rows) == 2 * 3 * 10
    assert set(rows[0]) == set(COLUMNS)
    for name in ("uniform", "ftrl-pbm"):
        result = bothworlds.play(
            name, bothworlds.world("paper/periodic-both", phase=50), 200, replications=3, seed=4, checkpoints=10
        )
        mine = [row for row in rows if row["policy"] == name]
        assert [int(row["round"]) for row in mine] == 3 * result.rounds.tolist()
        assert [int(row["replication"]) for row in mine] == np.repeat(range(3), 10).tolist()
        assert [float(row["reward"]) for row in mine] == result.reward.ravel().tolist()
        assert [float(row["clicks"]) for row in mine] == result.clicks.ravel().tolist()
        assert [float(row["regret_fixed"]) for row in mine] == result.regret("fixed").ravel().tolist()
        assert [float(row["regret_dynamic"]) for row in mine] == result.regret("dynamic").ravel().tolist()
        assert {row["world"] for row in mine} == {"paper/periodic-both(phase=50)"}
        assert {int(row["seed"]) for row in mine} == {4}


def check_provenance(how):
    """The metadata has the commit, the versions and the settings."""
    assert how["commit"] is None or how["commit"]
    assert how["versions"]["python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")
    assert how["versions"]["numpy"] == np.__version__
    assert how["versions"]["bothworlds"] == bothworlds.__version__
    assert {"numba", "scipy"} <= how["versions"].keys()
    plays = how["plays"]
    assert [play["policy"] for play in plays] == ["uniform", "ftrl-pbm"]
    assert plays[1]["settings"] == {"rate": 0.5, "tolerance": 1e-6, "every": 1, "restart": None}
    for play in plays:
        assert play["world"] == "paper/periodic-both(phase=50)"
        assert (play["seed"], play["replications"], play["rounds"]) == (4, 3, 200)


GAME = (
    "-p",
    "uniform",
    "-p",
    "ftrl-pbm",
    "-w",
    "paper/periodic-both:phase=50",
    *SHORT,
    "--seed",
    "4",
    "--checkpoints",
    "10",
)


def test_results_are_saved_as_csv_with_provenance_beside_them(tmp_path):
    path = tmp_path / "results.csv"
    assert "results.csv" in answer("play", *GAME, "--save", path)
    with path.open(newline="") as file:
        check_rows(list(csv.DictReader(file)))
    check_provenance(json.loads((tmp_path / "results.json").read_text()))


def test_results_are_saved_as_parquet_with_provenance_inside(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "results.parquet"
    assert "results.parquet" in answer("play", *GAME, "--save", path)
    table = parquet.read_table(path)
    check_rows(table.to_pylist())
    check_provenance(json.loads(table.schema.metadata[b"bothworlds"]))


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_saved_results_are_the_same_every_time(ending, tmp_path):
    for name in ("one", "two"):
        answer("play", *GAME, "--save", tmp_path / f"{name}{ending}")
    assert (tmp_path / f"one{ending}").read_bytes() == (tmp_path / f"two{ending}").read_bytes()


@pytest.mark.slow
def test_folders_are_created_for_files(tmp_path):
    answer(
        "play", "-p", "uniform", *SHORT, "--save", tmp_path / "a" / "r.csv", "--plot", tmp_path / "b" / "c" / "r.svg"
    )
    assert (tmp_path / "a" / "r.csv").exists()
    assert (tmp_path / "b" / "c" / "r.svg").exists()


@pytest.mark.slow
def test_the_arena_writes_a_table_results_and_figures(tmp_path):
    text = answer("arena", "--rounds", "20", "--replications", "1", "--jobs", "1", "--out", tmp_path / "out")
    assert "phase=10" in text
    assert "warning" not in text
    for word in (*bothworlds.policies.names(), "stochastic", "periodic-items", "periodic-both"):
        assert word in text
    made = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"arena.md", "arena.svg", "arena.png"} < made
    assert "arena.parquet" in made or "arena.csv" in made


def test_users_of_a_short_arena_change_half_way():
    """Otherwise the three worlds with the attraction of paper/stochastic would have equal columns."""
    text = answer("play", "-p", "fixed", *(f"-w{name}" for name in arena_worlds(200)), *SHORT)
    parts = [line.split("│")[2:-1] for line in text.splitlines() if "fixed" in line and "best" not in line]
    columns = [cell for part in parts for cell in part][:-1]
    assert len(columns) == len({column.strip() for column in columns}) + 1  # the last two lose the same
    assert arena_worlds(200_000)[3:] == ["paper/periodic-items", "paper/periodic-both"]


@pytest.mark.parametrize("world", ["paper/periodic-both", "drift/slow"])
def test_play_warns_once_of_a_world_that_does_not_change(world):
    result = run("play", "-p", "uniform", "-p", "fixed", "-w", world, "-w", "paper/stochastic", *SHORT)
    assert result.exit_code == 0
    assert result.stderr.startswith(
        f"warning: the users of {world} do not change in 200 rounds: they change first after "
    )
    assert len(result.stderr.strip().splitlines()) == 1


def test_generate_warns_of_a_world_that_does_not_change(tmp_path):
    result = run("generate", tmp_path / "log.csv", "--world", "paper/periodic-both", "--pages", "1e2")
    assert result.exit_code == 0
    assert "do not change in 100 rounds" in result.stderr


def test_the_default_number_of_rounds_shows_a_change():
    for command in (play_command, arena_command):
        rounds = inspect.signature(command).parameters["rounds"].default
        changes = [bothworlds.world(name).first_change() for name in bothworlds.worlds.names()]
        assert all(first is None or first < rounds for first in changes)


@pytest.mark.slow
def test_the_arena_may_be_smaller(tmp_path):
    text = answer("arena", "-p", "uniform", "-w", "yandex/stochastic", *SHORT, "--out", tmp_path)
    assert "ftrl-pbm" not in text


def test_tell_gives_a_policy_the_facts_it_needs():
    text = answer("play", "-p", "pbm-ucb", "--inform", "-w", "paper/stochastic", *SHORT)
    assert "pbm-ucb" in text
    assert "examination=" not in text


@pytest.mark.slow
def test_reproduce_writes_a_report(tmp_path, monkeypatch):
    from bothworlds.experiments import SIZES

    monkeypatch.setitem(SIZES, "quick", SIZES["quick"]._replace(few_replications=2, short_rounds=30))
    text = answer("reproduce", "--only", "shapes", "--out", tmp_path)
    assert "Regret grows no faster than m sqrt(n)." in text
    assert f"Numbers and intervals: {tmp_path / 'shapes' / 'report.html'}" in text


# Errors


REFUSED = {
    ("play", "-p", "pbm-ucb"): "pbm-ucb needs examination=...; if it is not known, use pbm-ucb-mle",
    ("play", "-p", "pbm-pie"): "pbm-pie needs examination=...; if it is not known, use pbm-pie-mle",
    ("play", "-p", "oracle"): "oracle needs world=...",
    ("reproduce", "--size", "huge"): "size must be one of quick, paper, long; got 'huge'",
    ("reproduce", "--only", "figure-3"): "no question named 'figure-3'; there are figure-1",
    ("play", "-p", "nobody"): "no policy named 'nobody'; there are",
    ("play", "-w", "nowhere"): "no world named 'nowhere'; there are",
    ("arena", "-p", "nobody"): "no policy named 'nobody'; there are",
    ("play", "-p", "ftrl"): "unirank; did you mean ftrl-pbm or ftrl-va?",
    ("play", "-p", "unifrom"): "; did you mean uniform?",
    ("play", "-p", "TopRank"): "; did you mean toprank?",
    ("arena", "-w", "periodic-both"): "; did you mean paper/periodic-both or yandex/periodic-both?",
    ("play", "-w", "paper/stochastc"): "; did you mean paper/stochastic",
    ("play", "-p", "fixed:ranking=0,1,2"): "write them like fixed:setting=0.5,other=3,list=[0,1,2]",
    ("play", "-p", "fixed:ranking=3"): "all different, like ranking=[2,0,1]; got 3",
    ("play", "-p", "uniform:rate=1"): "policy 'uniform' has no setting 'rate'; it has none",
    ("play", "-w", "yandex/stochastic:gap=0.1"): "no setting 'gap'; it has phase",
    ("play", "-p", "ftrl-pbm:rate=-1"): "rate must be a number from 1e-06 to 1000; got -1",
    ("play", "-p", "ftrl-pbm:rate='fast'"): "rate must be a number from 1e-06 to 1000; got 'fast'",
    ("play", "-w", "paper/stochastic:gap=0.5"): "gap must be from 0 to 0.1056",
    ("play", "-w", "paper/stochastic:gap=None"): "gap must be from 0 to 0.1056",
    ("play", "-w", "paper/periodic-both:phase=0"): "phase must be a whole number of at least 1; got 0",
    ("play", "-w", "paper/periodic-both:phase=None"): "phase must be a whole number of at least 1; got None",
    (
        "play",
        "-p",
        "ftrl-pbm:rate",
    ): "cannot read the settings in 'ftrl-pbm:rate'; write them like ftrl-pbm:setting=0.5",
    ("play", "-p", "ftrl-pbm:rate=fast"): "cannot read the settings",
    ("play", "-p", "ftrl-pbm:rate=__import__('os')"): "cannot read the settings",
    ("play", "-p", "ftrl-pbm:0.5"): "cannot read the settings",
    ("play", "-p", "ftrl-pbm:rate=0.5,rate=0.6"): "cannot read the settings",
    ("play", "-p", "ftrl-pbm:**{'rate': 1}"): "cannot read the settings",
    ("play", "-p", "ftrl-pbm:rate=1)+(2"): "cannot read the settings",
    ("play", "-p", "ftrl-pbm:rate=1)(rate=2"): "cannot read the settings",
    ("play", "--plot", "curves.txt"): "curves.txt must end in .svg or .png or .pdf",
    ("play", "--plot", "curves"): "curves must end in .svg or .png or .pdf",
    ("play", "--save", "results.xlsx"): "results.xlsx must end in .parquet or .csv",
}


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED.items(), ids=[" ".join(arguments) for arguments in REFUSED])
def test_errors_are_printed_in_one_line(arguments, sentence):
    result = run(*arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("play", "--rounds", "0"),
        ("play", "--replications", "x"),
        ("play", "--rounds", "1.5"),
        ("play", "--rounds", "1e-3"),
        ("play", "--rounds", "1e999999999"),
        ("play", "--rounds", "inf"),
        ("play", "--rounds", "-1e5"),
        ("play", "--seed", "-1"),
        ("generate", "log.csv", "--pages", "0"),
        ("bounds", "-w", "paper/stochastic", "--rounds", "none"),
        ("play", "--jobs", "-1"),
        ("plya",),
        ("play", "--polcy", "uniform"),
    ],
    ids=" ".join,
)
def test_wrong_options_are_refused(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


def test_a_file_that_cannot_be_written_is_an_error_in_one_line(tmp_path):
    (tmp_path / "taken").write_text("")
    result = run("play", "-p", "uniform", *SHORT, "--save", tmp_path / "taken" / "results.csv")
    assert result.exit_code == 2
    assert "taken" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.fixture
def without(monkeypatch):
    """A function that makes a library impossible to import."""

    def remove(module):
        for name in [name for name in sys.modules if name.partition(".")[0] == module]:
            monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.setitem(sys.modules, module, None)

    return remove


@pytest.mark.parametrize(("module", "extra"), [("matplotlib", "figures"), ("pyarrow", "parquet")])
@pytest.mark.parametrize("command", ["play", "reproduce"])
def test_a_missing_extra_is_named_before_anything_is_played(command, module, extra, without, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    without(module)
    played = ("play", "-p", "uniform", *SHORT, "--plot=x.svg" if module == "matplotlib" else "--save=x.parquet")
    result = run(*played) if command == "play" else run("reproduce", "--only", "shapes")
    assert (result.exit_code, result.stdout, list(tmp_path.iterdir())) == (2, "", [])
    assert f"pip install '.[{extra}]' in a checkout of bothworlds" in result.stderr


def test_the_arena_works_without_extras(without, tmp_path):
    without("matplotlib")
    without("pyarrow")
    result = run("arena", "-p", "uniform", "-w", "paper/stochastic", *SHORT, "--out", tmp_path)
    assert result.exit_code == 0
    assert "pip install '.[figures]' in a checkout of bothworlds" in result.stderr
    assert {path.name for path in tmp_path.glob("arena.*")} >= {"arena.md", "arena.csv"}
    assert not {".svg", ".png", ".parquet"} & {path.suffix for path in tmp_path.iterdir()}


# In its own process


@pytest.mark.slow
def test_python_m_bothworlds_runs_the_commands(tmp_path):
    done = run_program(
        "play", "--policy", "uniform", *SHORT, "--plot", "out.svg", "--save", "results.csv", cwd=tmp_path
    )
    assert done.returncode == 0
    assert done.stderr == ""
    assert "uniform" in done.stdout
    assert (tmp_path / "out.svg").stat().st_size > 2000
    assert (tmp_path / "results.csv").read_text().startswith(",".join(COLUMNS))


@pytest.mark.slow
def test_the_program_prints_errors_in_one_line():
    done = run_program("play", "--policy", "nobody")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("bothworlds: no policy named 'nobody'; there are")
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_an_interrupt_while_playing_ends_the_program():
    code = f"import bothworlds.progress as progress; progress.LINE_INTERVAL = 0.0; {WITH_INTERRUPTS}"
    endless = [
        sys.executable,
        "-c",
        code,
        "play",
        "--rounds",
        "1000000000",
        "--replications",
        "4",
        "--checkpoints",
        "100000",
    ]
    with subprocess.Popen(endless, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert "%" in process.stderr.readline()  # the first line of progress
        process.send_signal(signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode == 130
    assert "Traceback" not in errors


def interrupted_while_compiling(cache, *arguments):
    """Interrupt a program and all its processes while it compiles; return the exit status and standard error."""
    command = [sys.executable, "-c", WITH_INTERRUPTS, *map(str, arguments)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(command, env=os.environ | {"NUMBA_CACHE_DIR": str(cache)}, **options) as process:
        # The first kernel in the cache shows that the compiler is running.
        while not any(cache.rglob("*.nbi")) and process.poll() is None:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        # The pipe is closed when the last process of the session has ended.
        _, errors = process.communicate(timeout=300)
    return process.returncode, errors


@pytest.mark.slow
@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled here")
@pytest.mark.parametrize(
    "command",
    [
        pytest.param("play -j 1", marks=pytest.mark.nightly),
        "play -j 2",
        pytest.param("arena -j 2 --out out", marks=pytest.mark.nightly),
        pytest.param("reproduce --only shapes --out out", marks=pytest.mark.nightly),
    ],
)
def test_an_interrupt_while_compiling_ends_the_program_at_once(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (cache := tmp_path / "cache").mkdir()
    status, errors = interrupted_while_compiling(cache, *command.split())
    assert (status, errors) == (130, "stopped\n")
    assert not list(cache.rglob("loop.advance-*.nbi"))  # the last kernel to be compiled


@pytest.mark.slow
def test_a_closed_pipe_ends_the_program_silently():
    endless = [sys.executable, "-m", "bothworlds", "policies"]
    with subprocess.Popen(endless, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(300) in (0, 1, 141)


@pytest.mark.parametrize("interrupted", [True, False])
@pytest.mark.parametrize("error", [RuntimeError, ImportError])
def test_any_error_after_an_interrupt_is_the_interrupt(error, interrupted, monkeypatch, capsys):
    """Code that was interrupted in a callback may go on and fail with another exception."""
    from bothworlds.cli import common

    def command():
        raise error("half done")

    monkeypatch.setattr(common, "interrupted", lambda: interrupted)
    with pytest.raises(SystemExit if interrupted or error is ImportError else error) as caught:
        common.one_line_errors(command)()
    if isinstance(caught.value, SystemExit):
        assert caught.value.code == (130 if interrupted else 2)
        assert "Traceback" not in capsys.readouterr().err


def test_our_warnings_are_sentences_and_others_are_unchanged(capsys):
    from bothworlds.arena.fonts import FigureWarning
    from bothworlds.cli.common import one_line_errors

    def command():
        warnings.warn("names are codes", FigureWarning, stacklevel=1)
        warnings.warn("theirs", UserWarning, stacklevel=1)

    with pytest.warns(UserWarning, match="theirs") as caught:
        one_line_errors(command)()
    assert capsys.readouterr().err == "warning: names are codes\n"
    assert len(caught) == 1
