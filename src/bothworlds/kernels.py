"""One decorator for every compiled function, and a cache on disk that notices every edit.

Numba's own cache is keyed by the file a function is written in. Our kernels call one another across files, and
``arena`` compiles one loop around whatever policy it is given, so a stale entry would silently run yesterday's
policy. Here the key also holds the state of all sources a kernel can reach: this package's, and those of every
class that appears in the argument types (a policy's state may come from somebody else's package).
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core.caching import FunctionCache
from numpy.typing import NDArray

__all__ = [
    "Floats",
    "Ints",
    "inline_kernel",
    "inner_kernel",
    "kernel",
    "name_apart",
    "register_kernels",
    "spliced_kernel",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a function of arrays and scalars; cached on disk, free of the interpreter lock, IEEE arithmetic.

    Kernels write to arrays they are given and allocate none: without reference counts to keep, passing arrays around
    costs nothing. Division by zero gives inf or NaN as in NumPy, which is what lets loops become vector code.

    >>> @kernel
    ... def total(values):
    ...     s = 0.0
    ...     for v in values:
    ...         s += v
    ...     return s
    >>> import numpy as np
    >>> total(np.arange(4.0))
    6.0
    >>> total.py_func([1, 2])   # the same source, interpreted
    3.0
    """
    return _compiled(function, no_cpython_wrapper=False)


def inner_kernel(function: F) -> F:
    """A kernel that only other kernels call. Having no way in from Python, it takes half as long to compile."""
    return _shut(_compiled(function, no_cpython_wrapper=True))


def inline_kernel(function: F) -> F:
    """An inner kernel that becomes part of its caller: for the hottest ones, where even the call would show."""
    return _shut(_compiled(function, no_cpython_wrapper=True, forceinline=True))


def spliced_kernel(function: F) -> F:
    """A kernel that is typed and compiled as if written out in its caller; for short ones that call large ones.

    Every kernel between the loop and a large one is a module in which the large one is optimised once more. A spliced
    one is none.
    """
    return _shut(cast(F, numba.njit(inline="always", nogil=True, error_model="numpy", _nrt=False)(function)))


def _shut(compiled: F) -> F:
    """Refuse calls from Python, for which there is no code to run: Numba itself would jump into the void."""

    def refuse(*arguments: Any, **named: Any) -> Any:
        name = getattr(compiled, "__name__", "this kernel")
        raise TypeError(f"{name} is an inner kernel: only other kernels can call it, or Python its .py_func")

    def add_overload(result: Any) -> None:
        dispatcher.overloads[tuple(result.signature.args)] = result

    dispatcher: Any = compiled
    if hasattr(dispatcher, "overloads"):
        dispatcher._compile_for_args = refuse
        dispatcher.add_overload = add_overload
    return compiled


def _compiled(function: F, **options: bool) -> F:
    compiled = numba.njit(nogil=True, error_model="numpy", _nrt=False, no_cfunc_wrapper=True, **options)(function)
    if hasattr(compiled, "_cache"):  # a plain function under NUMBA_DISABLE_JIT
        # Where there is no writable place for a cache, every process compiles anew.
        with contextlib.suppress(RuntimeError):
            compiled._cache = _SourceAwareCache(function)
    return cast(F, compiled)


def register_kernels(verb: Callable[..., Any], implementations: dict[type, Callable[..., Any]]) -> None:
    """Let compiled code call ``verb(first, ...)`` and reach ``implementations[type(first)]``.

    ``first`` is an instance of a NamedTuple class; Numba keeps that class in the type, so the choice is made while
    compiling and costs nothing while running. The verb's own parameters are those of its implementations.
    """
    from numba.extending import overload

    def choose(first: Any, *others: Any) -> Callable[..., Any] | None:
        chosen = implementations.get(getattr(first, "instance_class", object))
        return getattr(chosen, "py_func", chosen)

    overload(verb, strict=False)(choose)  # strict would compare annotations too


def name_apart(state_class: type) -> None:
    """Give a NamedTuple class a name that no other has, since Numba tells such classes apart by name and fields only.

    Without it, two policies whose files both call their state ``State`` could end up with one compiled loop.
    """
    if _apart.get(state_class.__name__) is not state_class:
        full = f"{state_class.__module__}.{state_class.__qualname__}"
        known = sum(name == full or name.startswith(f"{full}#") for name in _apart)
        state_class.__name__ = f"{full}#{known + 1}" if known else full
        _apart[state_class.__name__] = state_class
    _digest_of_package.cache_clear()  # a class that is new may come from a file that has been edited


_apart: dict[str, type] = {}


class _SourceAwareCache(FunctionCache):  # type: ignore[misc]
    """Numba's function cache with a key of plain text that covers every source the function can reach."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file._source_stamp = _digest_of(__name__) + _digest_of(function.__module__)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        return super().load_overload(sig, target_context) if _has_source(sig) else None

    def save_overload(self, sig: Any, data: Any) -> None:
        if _has_source(sig):
            super().save_overload(sig, data)

    def _index_key(self, sig: Any, codegen: Any) -> str:
        parts = [str(sig), str(codegen.magic_tuple()), self._py_func.__code__.co_code.hex()]
        for owner in sorted({f"{c.__module__}.{c.__qualname__}" for c in _classes_in(sig)}):
            parts += [owner, _digest_of(owner.rpartition(".")[0])]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _classes_in(types: Any) -> Iterator[type]:
    for t in types:
        if hasattr(t, "instance_class"):
            yield t.instance_class
        if isinstance(t, numba.types.BaseTuple):
            yield from _classes_in(t.types)


def _has_source(types: Any) -> bool:
    """Whether all classes among the types are written in files; what is typed at a prompt is not kept on disk."""
    return all(_is_written_down(owner) for owner in _classes_in(types))


@cache
def _is_written_down(owner: type) -> bool:
    try:
        return bool(inspect.getsource(owner))
    except (OSError, TypeError):
        return False


def _digest_of(module_name: str) -> str:
    """Identify the sources around a module: its whole top-level package, or its file."""
    return _digest_of_package(module_name.partition(".")[0])


@cache
def _digest_of_package(name: str) -> str:
    top = sys.modules.get(name)
    places = list(getattr(top, "__path__", []))
    files = [f for place in places for f in sorted(Path(place).rglob("*.py"))]
    own = Path(str(getattr(top, "__file__", "")))
    if not files and own.is_file():
        files = [own]
    digest = hashlib.sha256()
    for f in files:
        stat = f.stat()
        digest.update(f"{f}:{stat.st_mtime_ns}:{stat.st_size}".encode())
    return digest.hexdigest()
