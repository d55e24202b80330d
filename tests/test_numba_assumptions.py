"""The private parts of Numba that ``kernels.py`` and ``random_stream.py`` rely on, one test for each assumption.

When a new release of Numba breaks one of them, the name of the failing test says which. pyproject.toml limits Numba to
the releases for which these tests have passed.
"""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest
from numba.core.caching import FunctionCache, _Cache
from numba.core.codegen import JITCodeLibrary
from numba.extending import overload

from bothworlds import kernels
from bothworlds.kernels import inner_kernel, kernel, name_apart

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="without compilation there is no dispatcher")

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


class Pair(NamedTuple):
    values: np.ndarray
    factor: float


class Words(NamedTuple):
    words: np.ndarray


def double(x):
    return 2.0 * x


def test_the_installed_release_is_in_the_tested_range():
    dependencies = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
    least, below = next(d for d in dependencies if d.startswith("numba")).removeprefix("numba>=").split(",<")
    release = tuple(int(part) for part in numba.__version__.split(".")[:2])
    assert tuple(map(int, least.split("."))) <= release < tuple(map(int, below.split(".")))


@pytest.mark.parametrize("option", ["_nrt", "no_cpython_wrapper", "no_cfunc_wrapper", "forceinline"])
def test_njit_accepts_the_undocumented_option(option):
    numba.njit(nogil=True, error_model="numpy", **{option: False})(double)


def test_njit_inlines_before_type_inference():
    numba.njit(inline="always", _nrt=False)(double)


@pytest.mark.parametrize("attribute", ["_cache", "_compile_for_args", "add_overload", "overloads", "py_func"])
def test_a_dispatcher_has_the_attribute(attribute):
    assert hasattr(numba.njit(double), attribute)


def test_a_dispatcher_asks_its_cache_before_it_compiles():
    calls = []

    class Recording(FunctionCache):
        def load_overload(self, sig, target_context):
            calls.append("load")

        def save_overload(self, sig, data):
            calls.append("save")

    dispatcher = numba.njit(double)
    dispatcher._cache = Recording(double)
    assert dispatcher(1.5) == 3.0
    assert calls == ["load", "save"]


def test_a_dispatcher_calls_compile_for_args_for_new_types():
    """This is how calls of inner kernels from Python are rejected."""
    with pytest.raises(TypeError, match="is an inner kernel"):
        inner_kernel(double)(1.0)


def test_the_function_cache_has_the_methods_that_are_overridden():
    assert list(inspect.signature(FunctionCache.load_overload).parameters) == ["self", "sig", "target_context"]
    assert list(inspect.signature(FunctionCache.save_overload).parameters) == ["self", "sig", "data"]
    assert list(inspect.signature(FunctionCache._index_key).parameters) == ["self", "sig", "codegen"]
    assert issubclass(FunctionCache, _Cache)


def test_the_function_cache_stores_the_function_and_a_source_stamp():
    cache = FunctionCache(double)
    assert cache._py_func is double
    assert hasattr(cache._cache_file, "_source_stamp")


def test_a_compiler_asks_the_library_that_it_is_given():
    """This is how inner kernels are compiled without machine code."""
    for name in ("finalize", "get_pointer_to_function", "serialize_using_object_code", "_get_module_for_linking"):
        assert callable(getattr(JITCodeLibrary, name))
    dispatcher = inner_kernel(double)
    dispatcher.compile((numba.float64,))
    (result,) = dispatcher.overloads.values()
    assert isinstance(result.library, kernels._InnerLibrary)
    assert result.library.get_pointer_to_function(result.fndesc.llvm_func_name) == 0


def test_a_compile_result_is_reduced_to_the_fields_that_the_cache_restores():
    numbers = numba.njit(double)
    numbers(1.0)
    (result,) = numbers.overloads.values()
    _, *fields = result._reduce()
    restored = dict(zip(kernels.REDUCED_FIELDS, fields, strict=True))
    assert restored["fndesc"] is result.fndesc
    assert restored["signature"] == result.signature
    assert restored["lifted"] == result.lifted


def test_a_kernel_that_kernels_call_is_asked_for_its_template_and_its_overload():
    """This is how kernels call the inner twin of a kernel that Python calls as well."""

    @kernel
    def halved(x):
        return 0.5 * x

    @kernel
    def caller(x):
        return halved(x) + 1.0

    assert caller(3.0) == 2.5
    assert not halved.overloads
    assert halved(3.0) == 1.5
    assert len(halved.overloads) == 1


def test_the_type_of_a_named_tuple_holds_its_class_and_the_types_of_its_fields():
    kind = numba.typeof(Pair(np.zeros(2), 1.0))
    assert kind.instance_class is Pair
    assert isinstance(kind, numba.types.BaseTuple)
    assert len(kind.types) == 2


def test_a_kernel_takes_two_classes_of_one_name_and_the_same_fields_for_one():
    """This is why ``name_apart`` gives every state class its own name.

    Numba's types of the two differ. But a call from Python is dispatched by a fingerprint of its arguments, which has
    the name and the fields of a named tuple, and not its class: the second class gets the code of the first one, with
    or without a cache.
    """
    one, other = NamedTuple("Same", [("x", float)]), NamedTuple("Same", [("x", float)])
    assert numba.typeof(one(1.0)) != numba.typeof(other(1.0))
    for apart in (False, True):
        if apart:
            name_apart(one)
            name_apart(other)

        @kernel
        def first(values):
            return values[0]

        assert first(one(1.0)) + first(other(2.0)) == 3.0
        assert len(first.overloads) == 1 + apart
    assert one.__name__.isidentifier()
    assert other.__name__.isidentifier()


def test_an_overload_may_have_other_parameter_names_with_strict_off():
    def verb(first, second):
        raise NotImplementedError

    overload(verb, strict=False)(lambda first, *others: lambda first, second: first + second)

    @kernel
    def caller(x):
        return verb(x, 1.0)

    assert caller(2.0) == 3.0


def test_a_random_generator_and_a_tuple_of_equal_types_have_types_of_their_own():
    assert isinstance(numba.typeof(np.random.default_rng(0)), numba.types.NumPyRandomGeneratorType)
    assert isinstance(numba.typeof(Words(np.zeros(2))), numba.types.NamedUniTuple)
