"""One decorator for every compiled function, and a cache on disk that notices every edit.

Numba's own cache is keyed by the file a function is written in. Our kernels call one another across files, and
``arena`` compiles one loop around whatever policy it is given, so a stale entry would silently run yesterday's
policy. Here the key is a hash of all sources a kernel can reach: the module it is written in, those of every class that
appears in the argument types and of the kernels registered for it (a policy may come from somebody else's package), and
all modules that these import, directly or not. An edit elsewhere compiles nothing.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
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

    _registered.append(implementations)

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
    for known_by_name in (_source_of, _digest_of):  # a class that is new may come from a file that has been edited
        known_by_name.cache_clear()


_apart: dict[str, type] = {}
_registered: list[dict[type, Callable[..., Any]]] = []


class _SourceAwareCache(FunctionCache):  # type: ignore[misc]
    """Numba's function cache with a key of plain text that covers every source the function can reach."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        return super().load_overload(sig, target_context) if self._keeps(sig) else None

    def save_overload(self, sig: Any, data: Any) -> None:
        if self._keeps(sig):
            super().save_overload(sig, data)

    def _keeps(self, sig: Any) -> bool:
        self._cache_file._source_stamp = _digest_of(self._py_func.__module__)
        return all(_is_written_down(owner) for owner in _classes_in(sig))

    def _index_key(self, sig: Any, codegen: Any) -> str:
        parts = [str(sig), str(codegen.magic_tuple()), self._py_func.__code__.co_code.hex()]
        parts += [_digest_of(module) for module in sorted(_modules_behind(sig))]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _modules_behind(types: Any) -> set[str]:
    """The modules of all classes among the types, and of the kernels that are registered for them."""
    classes = list(_classes_in(types))
    kernels = [known[owner] for known in _registered for owner in classes if owner in known]
    return {owner.__module__ for owner in [*classes, *kernels]}


def _classes_in(types: Any) -> Iterator[type]:
    for t in types:
        if hasattr(t, "instance_class"):
            yield t.instance_class
        if isinstance(t, numba.types.BaseTuple):
            yield from _classes_in(t.types)


@cache
def _is_written_down(owner: type) -> bool:
    """Whether a class is written in a file; code compiled for one typed at a prompt is not kept on disk."""
    try:
        return bool(inspect.getsource(owner))
    except (OSError, TypeError):
        return False


@cache
def _digest_of(module_name: str) -> str:
    """A hash of a module's source and of all it imports, directly or not, from its own package and from this one.

    Of a module that is in no package, plain files in its folder are part of it.
    """
    own, top = __name__.partition(".")[0], module_name.partition(".")[0]
    homes = {own: Path(__file__).parents[1], top: _home_of(top)}
    beside = None if hasattr(sys.modules.get(top), "__path__") else homes[top]
    reached: dict[str, str] = {}
    waiting = [module_name, __name__]
    while waiting:
        name = waiting.pop()
        home = homes.get(name.partition(".")[0], beside)
        if name not in reached and home is not None:
            reached[name], imports = _source_of(name, home)
            waiting += imports
    return hashlib.sha256("\n".join(f"{name} {reached[name]}" for name in sorted(reached)).encode()).hexdigest()


def _home_of(package: str) -> Path:
    """The folder in which a package or a plain module lies."""
    module = sys.modules.get(package)
    places = [*getattr(module, "__path__", []), getattr(module, "__file__", None) or "."]
    return Path(places[0]).absolute().parent


@cache
def _source_of(module_name: str, home: Path) -> tuple[str, tuple[str, ...]]:
    """A hash of a module's source, and the names of what it imports; nothing if there is no such module there."""
    place = home.joinpath(*module_name.split("."))
    package = place / "__init__.py"
    file = package if package.is_file() else place.with_name(f"{place.name}.py")
    if not file.is_file():
        return "", ()
    text = file.read_bytes()
    inside = module_name if file == package else module_name.rpartition(".")[0]
    return hashlib.sha256(text).hexdigest(), tuple(_imported(ast.parse(text).body, inside.split(".")))


def _imported(statements: Iterable[ast.stmt], package: list[str]) -> Iterator[str]:
    """The modules that may be imported as a source is loaded; ``from a import b`` may mean the module a.b."""
    for node in statements:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (base, *(f"{base}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Try) or (isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test)):
            yield from _imported(
                (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)), package
            )
