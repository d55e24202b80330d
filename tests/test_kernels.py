"""The kernel decorators and their cache: an edit that a kernel can reach compiles it again, any other edit does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError

from bothworlds import kernels
from bothworlds.kernels import inner_kernel, kernel, register_kernels

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
        self.variables = {"NUMBA_CACHE_DIR": str(folder / "cache")}
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

    def run_text(self, file: str = "main.py", **variables: str) -> str:
        hidden = ("NUMBA_DISABLE_JIT", "NUMBA_CACHE_DIR", "PYTHONDONTWRITEBYTECODE")
        environment = {k: v for k, v in os.environ.items() if k not in hidden}
        environment["PYTHONPATH"] = os.pathsep.join(p for p in [str(self.folder), *sys.path] if p)
        environment |= self.variables | variables
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


@pytest.mark.slow
@pytest.mark.skipif(not COMPILED, reason="without compilation there is no cache")
def test_states_of_one_name_in_two_modules_have_their_own_code(tmp_path):
    """Also where the code of both was compiled in other processes."""
    project = Project(tmp_path, OURS)
    policy = (tmp_path / "policy.py").read_text()
    for name, factor in (("sheep", "1.0"), ("goats", "100.0")):
        (tmp_path / f"{name}.py").write_text(policy.replace("return 1.0", f"return {factor}"))
    answers = {}
    for order in (["sheep"], ["goats"], ["sheep", "goats"], ["goats", "sheep"]):
        main = f"import numpy as np, sheep, goats\nfrom loop import play\nfor m in {', '.join(order)},:\n"
        (tmp_path / "main.py").write_text(main + "    print(play(m.State(np.arange(4.0)), 10))\n")
        answers[tuple(order)] = project.run_text().split()
    expected = {"sheep": "60.0", "goats": "6000.0"}
    assert answers == {order: [expected[name] for name in order] for order in answers}


def test_states_of_one_name_in_one_kernel_have_their_own_code():
    """Numba takes them for one: it knows a tuple by the name of its class and by its fields."""
    classes = [NamedTuple("Same", [("x", float)]) for _ in range(2)]
    factors = dict(zip(classes, (kernel(lambda state: state.x), kernel(lambda state: 10.0 * state.x))))

    def scaled(state):
        return factors[type(state)](state)

    register_kernels(scaled, factors)

    @kernel
    def twice(states):
        return 2.0 * scaled(states[0])

    for _ in range(2):
        assert [twice((owner(3.0),)) for owner in classes] == [6.0, 60.0]


# A kernel of another package that calls an inner kernel of this one.
DIVERGENCE = """
    from bothworlds.kernels import kernel
    from bothworlds.statistics.kl import kl

    @kernel
    def divergence(p, q):
        return kl(p, q)

    print(divergence(0.5, 0.25))
"""


@pytest.mark.slow
@pytest.mark.skipif(not COMPILED, reason="without compilation there is no cache")
class TestAnInstallation:
    """A copy of the package in its own folder."""

    @pytest.fixture
    def project(self, tmp_path):
        project = Project(tmp_path, OURS)
        project.variables = {}
        ours = shutil.ignore_patterns("__pycache__", "*.html", "*.css", "*.js")
        shutil.copytree(Path(kernels.__file__).parent, tmp_path / "bothworlds", ignore=ours)
        project.write("divergence", DIVERGENCE)
        project.write("main", "import divergence")
        return project

    def test_notices_an_edit_of_its_own_kernels_only(self, project):
        answer = project.run_text()
        before = project.compiled_files()
        for elsewhere in ("serve/engine/engine.py", "cli/__init__.py", "arena/figures.py"):
            file = project.folder / "bothworlds" / elsewhere
            file.write_text(file.read_text() + "\nEDITED = True\n")
        assert project.run_text() == answer
        assert project.compiled_files() == before
        file = project.folder / "bothworlds" / "statistics" / "kl.py"
        lines = file.read_text().splitlines()
        head = next(k for k, line in enumerate(lines) if line.startswith("def kl("))
        file.write_text("\n".join([*lines[: head + 1], "    if p == 0.5:\n        return 7.0", *lines[head + 1 :], ""]))
        assert float(project.run_text()) == 7.0

    def test_that_is_read_only_keeps_code_in_the_folder_of_the_user(self, project):
        answer = project.run_text()
        shutil.rmtree(project.folder / "bothworlds" / "__pycache__")
        (project.folder / "bothworlds" / "__pycache__").write_text("no folder can be made here")
        user = project.folder / "user"
        assert project.run_text(XDG_CACHE_HOME=str(user)) == answer
        before = project.compiled_files()
        assert before
        assert all(user in file.parents for file in project.folder.rglob("*.nbi"))
        assert project.run_text(XDG_CACHE_HOME=str(user)) == answer
        assert project.compiled_files() == before

    def test_without_a_folder_for_code_works(self, project):
        (project.folder / "bothworlds" / "__pycache__").write_text("no folder can be made here")
        project.run_text(XDG_CACHE_HOME=str(project.folder / "main.py"))
        assert not project.compiled_files()

    def test_deletes_the_code_of_other_sources_after_a_day(self, project):
        places = [project.folder / "bothworlds" / "__pycache__" / f"kernels-{name}" for name in ("old", "new", "now")]
        for place, days in zip(places, (1.1, 0.9, 0.0)):
            place.mkdir(parents=True)
            (place / "some.nbi").write_text("")
            os.utime(place, (time.time() - days * 86_400,) * 2)
        project.run_text()
        assert [place.exists() for place in places] == [False, True, True]

    def test_works_with_the_public_parts_of_numba_alone(self, project):
        answer = project.run_text()
        project.write("later", "import numba\nnumba.__version__ = '9.9.9'\nimport divergence")
        assert project.run_text("later.py", NUMBA_CACHE_DIR=str(project.folder / "later")) == answer


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
        assert refused.value.__context__ is None

    def test_another_mistake_has_the_report_of_numba(self):
        with pytest.raises(TypingError, match="unknown"):
            has_no_type(1.0)


@inner_kernel
def checked(x):
    if x < 0.0:
        raise ValueError("negative")
    return np.sqrt(x)


@kernel
def root_twice(x):
    return checked(checked(x))


def test_an_error_in_an_inner_kernel_is_raised():
    assert root_twice(16.0) == 2.0
    with pytest.raises(ValueError, match="negative"):
        root_twice(-1.0)


@pytest.mark.skipif(not COMPILED, reason="without compilation, an inner kernel is a function")
def test_an_inner_kernel_called_from_python_raises():
    with pytest.raises(TypeError, match=r"checked is an inner kernel: only kernels can call it; .* its \.py_func"):
        checked(1.0)
    assert checked.py_func(4.0) == 2.0
