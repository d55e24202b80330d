"""The kernel decorators and their cache: an edit that a kernel can reach compiles it again, any other edit does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError

import bothworlds
from bothworlds import kernels
from bothworlds.kernels import forget_sources, kernel, register_kernels, source_digest

COMPILED = not numba.config.DISABLE_JIT

# A policy of another package: its state, the implementation of a verb, and a constant to edit.
POLICY = """
    from typing import NamedTuple
    import numpy as np
    from decorator import kernel
    from verbs import register_kernels, total

    class State(NamedTuple):
        values: np.ndarray

    @kernel
    def total_of_state(state):
        s = 0.0
        for v in state.values:
            s += v
        return FACTOR * s

    register_kernels(total, {State: total_of_state})
"""
VERBS = """
    from bothworlds.kernels import register_kernels

    def total(state):
        raise NotImplementedError
"""
# A loop like the arena's, in a file that is never edited.
LOOP = """
    from decorator import kernel
    from verbs import total

    @kernel
    def play(state, rounds):
        s = 0.0
        for _ in range(rounds):
            s += total(state)
        return s
"""
MAIN = """
    import numpy as np
    from loop import play
    from policy import State

    print(play(State(np.arange(4.0)), 10))
"""
OURS = "from bothworlds.kernels import kernel"
NUMBAS_OWN = """
    import numba
    kernel = numba.njit(cache=True)
"""


class Project:
    """A project of a few files in its own folder, run in its own process."""

    def __init__(self, folder: Path, decorator: str) -> None:
        self.folder, self.edits = folder, 0
        for name, source in {"verbs": VERBS, "loop": LOOP, "main": MAIN, "decorator": decorator}.items():
            self.write(name, source)
        self.edit(factor=1.0)

    def write(self, name: str, source: str) -> None:
        (self.folder / f"{name}.py").write_text(dedent(source))

    def edit(self, factor: float) -> None:
        self.write("policy", POLICY.replace("FACTOR", repr(factor)))
        self.edits += 1  # Python distinguishes versions of a file by whole seconds and size
        os.utime(self.folder / "policy.py", (1e9 + self.edits, 1e9 + self.edits))

    def run(self) -> float:
        return float(self.run_text())

    def run_text(self, file: str = "main.py") -> str:
        hidden = ("NUMBA_DISABLE_JIT", "NUMBA_CACHE_DIR", "PYTHONDONTWRITEBYTECODE")
        environment = {k: v for k, v in os.environ.items() if k not in hidden}
        environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        done = subprocess.run(
            [sys.executable, file], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def compiled_files(self) -> dict[str, int]:
        """Every file of the cache and when it was written."""
        files = [f for pattern in ("*.nbi", "*.nbc") for f in self.folder.rglob(pattern)]
        return {f.name: f.stat().st_mtime_ns for f in files}


def check_edit_is_noticed(project: Project) -> None:
    assert project.run() == 60.0
    project.edit(factor=3.0)
    assert project.run() == 180.0, "the cache ran the policy from before the edit"


def check_cache_is_used(project: Project) -> None:
    project.run()
    before = project.compiled_files()
    assert before, "nothing was cached"
    project.run()
    assert project.compiled_files() == before, "something was compiled again"


@pytest.mark.skipif(not COMPILED, reason="without compilation there is no cache")
class TestTheCache:
    @pytest.mark.slow
    def test_notices_an_edit_in_another_file(self, tmp_path):
        check_edit_is_noticed(Project(tmp_path, OURS))

    @pytest.mark.slow
    def test_is_used_as_long_as_nothing_is_edited(self, tmp_path):
        check_cache_is_used(Project(tmp_path, OURS))

    @pytest.mark.slow
    @pytest.mark.nightly
    def test_of_numba_itself_runs_the_policy_from_before_the_edit(self, tmp_path):
        """The reason for our own cache, and the proof that the check can fail."""
        with pytest.raises(AssertionError, match="before the edit"):
            check_edit_is_noticed(Project(tmp_path, NUMBAS_OWN))

    @pytest.mark.slow
    @pytest.mark.nightly
    def test_a_cache_that_is_not_used_is_caught(self, tmp_path):
        project = Project(tmp_path, OURS)
        run = project.run

        def run_after_an_edit() -> float:
            project.edit(factor=2.0 + project.edits)
            return run()

        project.run = run_after_an_edit
        with pytest.raises(AssertionError, match="compiled again"):
            check_cache_is_used(project)


DOCUMENTED = Path(__file__).parents[1] / "docs" / "add-a-policy.md"
PLAY = """
from bothworlds import play
print(play(FastGreedy(), "paper/stochastic", rounds=200, replications=1).reward.sum())
"""


def documented_policy() -> str:
    """The source of the compiled policy of the documentation."""
    lines = DOCUMENTED.read_text().splitlines()
    source = "\n".join(line[4:] for line in lines if line.startswith((">>>", "...")))
    compiled = source[source.index("from bothworlds.core import decides") : source.index("check_policy(FastGreedy()")]
    needed = ("from dataclasses import dataclass", "from typing import NamedTuple", "import numpy as np")
    return "\n".join([*needed, "from bothworlds.core import Shape", compiled])


@pytest.mark.skipif(not COMPILED, reason="without compilation there is no cache")
class TestThePolicyOfTheDocumentation:
    """A compiled policy of one's own, run again and again, then edited: it must run, and run what the file says."""

    EDIT = ("state.shown[i, j] + 1.0)", "state.shown[i, j] + 9.0)")

    def check(self, project: Project, edited: str, main: str = "main.py") -> None:
        first = project.run_text(main)
        assert project.run_text(main) == first
        file = project.folder / edited
        assert self.EDIT[0] in file.read_text()
        file.write_text(file.read_text().replace(*self.EDIT))
        assert project.run_text(main) != first, "the cache ran the policy from before the edit"

    @pytest.mark.slow
    def test_runs_as_a_script(self, tmp_path):
        (tmp_path / "mine.py").write_text(documented_policy() + PLAY)
        self.check(Project(tmp_path, OURS), "mine.py", "mine.py")

    @pytest.mark.slow
    @pytest.mark.nightly
    def test_runs_in_a_package(self, tmp_path):
        package = tmp_path / "of_mine"
        package.mkdir()
        (package / "__init__.py").write_text("from .policy import FastGreedy\n")
        (package / "policy.py").write_text(documented_policy())
        project = Project(tmp_path, OURS)
        (tmp_path / "main.py").write_text("from of_mine import FastGreedy" + PLAY)
        self.check(project, "of_mine/policy.py")


@pytest.mark.skipif(not COMPILED, reason="without compilation there is no cache")
def test_states_of_one_name_in_two_modules_have_their_own_code(tmp_path):
    """Also where the code of both was compiled in other processes."""
    project = Project(tmp_path, OURS)
    policy = (tmp_path / "policy.py").read_text()
    policy = policy.replace("register_kernels(total", "name_apart(State)\nregister_kernels(total")
    policy = policy.replace("from verbs", "from bothworlds.kernels import name_apart\nfrom verbs")
    for name, factor in (("one", "1.0"), ("two", "100.0")):
        (tmp_path / f"{name}.py").write_text(policy.replace("return 1.0", f"return {factor}"))
    answers = {}
    for order in (["one"], ["two"], ["one", "two"], ["two", "one"]):
        main = f"import numpy as np, one, two\nfrom loop import play\nfor m in {', '.join(order)},:\n"
        (tmp_path / "main.py").write_text(main + "    print(play(m.State(np.arange(4.0)), 10))\n")
        answers[tuple(order)] = project.run_text().split()
    expected = {"one": "60.0", "two": "6000.0"}
    assert answers == {order: [expected[name] for name in order] for order in answers}


class TestWhatAKernelCanReach:
    """The key of the cache, of this package's own modules."""

    @pytest.fixture
    def package(self, tmp_path, monkeypatch):
        """A copy of the package, of which the key is made instead."""
        copy = tmp_path / "bothworlds"
        shutil.copytree(Path(kernels.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
        monkeypatch.setattr(kernels, "__file__", str(copy / "kernels.py"))
        monkeypatch.setattr(bothworlds, "__path__", [str(copy)])
        forget_sources()
        yield copy
        forget_sources()

    def keys_after_an_edit(self, package: Path, edited: str) -> set[str]:
        """Which of some modules have another key after a file is edited."""
        names = [
            "geometry.newton",
            "policies.ftrl_pbm",
            "policies.gibbs_ts",
            "arena.loop",
            "clicks.reading.text_kernels",
        ]
        before = {name: source_digest(f"bothworlds.{name}") for name in names}
        file = package / edited
        file.write_text(file.read_text() + "\nEDITED = True\n")
        forget_sources()
        return {name for name in names if source_digest(f"bothworlds.{name}") != before[name]}

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "edited", ["serve/engine/engine.py", "cli/__init__.py", "experiments/report.py", "clicks/model/model.py"]
    )
    def test_an_edit_elsewhere_compiles_nothing(self, package, edited):
        assert self.keys_after_an_edit(package, edited) == set()

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("edited", "compiled"),
        [
            ("policies/ftrl_pbm.py", {"policies.ftrl_pbm"}),
            ("geometry/feasible.py", {"policies.ftrl_pbm"}),
            ("geometry/newton.py", {"geometry.newton", "policies.ftrl_pbm"}),
            ("clicks/reading/text_kernels.py", {"clicks.reading.text_kernels"}),
        ],
    )
    def test_an_edit_in_reach_compiles_what_reaches_it(self, package, edited, compiled):
        assert self.keys_after_an_edit(package, edited) >= compiled

    @pytest.mark.slow
    def test_an_edit_of_the_decorator_compiles_everything(self, package):
        assert len(self.keys_after_an_edit(package, "kernels.py")) == 5

    @pytest.mark.slow
    def test_what_is_loaded_makes_no_difference(self):
        asked = "import bothworlds.kernels as k; print(k.source_digest('bothworlds.arena.loop'))"
        keys = {
            subprocess.run([sys.executable, "-c", f"{first}; {asked}"], capture_output=True, text=True).stdout
            for first in (
                "pass",
                "import bothworlds.serve.engine.engine, bothworlds.policies.pmed.policy, bothworlds.arena",
            )
        }
        assert len(keys) == 1


@kernel
def ratio(a, b):
    return a / b


@kernel
def sum_of(values):
    s = 0.0
    for v in values:
        s += v
    return s


@pytest.mark.slow
def test_division_by_zero_is_that_of_numpy():
    values = np.array([1.0, -1.0, 0.0])
    with np.errstate(all="ignore"):
        expected = values / np.zeros(3)
    if COMPILED:
        assert np.array_equal([ratio(v, 0.0) for v in values], expected, equal_nan=True)


def test_a_kernel_keeps_its_source():
    values = np.arange(5.0)
    plain = getattr(sum_of, "py_func", sum_of)
    assert plain(values) == sum_of(values) == 10.0
    assert plain([1, 2]) == 3.0


class Circle(NamedTuple):
    radius: float


class Square(NamedTuple):
    side: float


class Blob(NamedTuple):
    mass: float


def area(shape, scale):
    return AREAS[type(shape)](shape, scale)


@kernel
def circle_area(shape, scale):
    return 3.0 * shape.radius * shape.radius * scale


@kernel
def square_area(shape, scale):
    return shape.side * shape.side * scale


AREAS = {Circle: circle_area, Square: square_area}
register_kernels(area, AREAS)


@kernel
def twice_the_area(shape):
    return 2.0 * area(shape, 10.0)


def test_a_verb_reaches_the_implementation_for_its_first_argument():
    assert twice_the_area(Circle(2.0)) == 240.0
    assert twice_the_area(Square(2.0)) == 80.0
    assert area(Circle(2.0), 1.0) == 12.0


def test_a_verb_without_an_implementation_does_not_compile():
    with pytest.raises(TypingError if COMPILED else KeyError):
        twice_the_area(Blob(1.0))


@kernel
def makes_an_array(n):
    values = np.zeros(n)
    return values.sum()


@kernel
def copies(values):
    return sum_of(values.copy())


@kernel
def makes_a_list(x):
    return [x, x][0]


@kernel
def has_no_type(x):
    return x.unknown


@pytest.mark.skipif(not COMPILED, reason="without compilation, kernels may allocate")
class TestAKernelThatAllocates:
    @pytest.mark.parametrize(
        ("wrong", "argument"),
        [(makes_an_array, 3), (copies, np.ones(3)), (makes_a_list, 1.0)],
        ids=lambda x: getattr(x, "__name__", ""),
    )
    def test_is_refused_with_the_rule_and_the_place(self, wrong, argument):
        line = wrong.py_func.__code__.co_firstlineno
        with pytest.raises(TypeError, match=r"kernels allocate nothing") as refused:
            wrong(argument)
        place = str(refused.value).partition("test_kernels.py (")[2]
        assert line <= int(place.partition(")")[0]) <= line + 3
        assert len(str(refused.value)) < 400
        assert refused.value.__suppress_context__

    def test_another_mistake_has_the_report_of_numba(self):
        with pytest.raises(TypingError, match="unknown"):
            has_no_type(1.0)


# Two inner kernels, and one that Python calls.
INNER = """
    import warnings

    import numpy as np
    from bothworlds.kernels import inner_kernel, kernel

    @inner_kernel
    def checked(x):
        if x < 0.0:
            raise ValueError("negative")
        return np.sqrt(x)

    @inner_kernel
    def total(values):
        s = 0.0
        for v in values:
            s += checked(v)
        return s

    @kernel
    def doubled(values):
        return 2.0 * total(values)

    warnings.simplefilter("error")
    print(doubled(np.array([1.0, 4.0])))
    try:
        doubled(np.array([1.0, -4.0]))
    except ValueError as error:
        print(error.args)
    print(sum(doubled.stats.cache_hits.values()), [len(k.overloads) for k in (checked, total)])
    for k in (checked, total):
        for result in k.overloads.values():
            print(result.library._compiled_object)
"""


@pytest.mark.slow
@pytest.mark.skipif(not COMPILED, reason="without compilation there is no cache")
def test_inner_kernels_have_no_machine_code_and_raise_like_others_compiled_and_from_the_cache(tmp_path):
    project = Project(tmp_path, OURS)
    project.write("main", "import inner")  # kernels of a script are not cached
    project.write("inner", INNER)
    answer = "6.0\n('negative',)\n"
    assert project.run_text() == answer + "0 [1, 1]\nNone\nNone\n"
    before = project.compiled_files()
    assert project.run_text() == answer + "1 [0, 0]\n"  # the outermost kernel has all code of the inner ones
    assert project.compiled_files() == before
    project.write("inner", INNER.replace("2.0 * total", "4.0 / 2.0 * total"))  # another caller of the same kernels
    assert project.run_text().startswith(answer)
