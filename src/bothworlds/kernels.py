"""The decorators of compiled functions, and a compilation cache on disk that is keyed by source code.

The key of Numba's own cache is the file in which a function is defined. Kernels call one another across files, and
``arena`` compiles one loop for every policy, so after an edit a stale entry would run the old version of a policy. Here
the key is a hash of all sources that a kernel can reach: the module in which it is defined, the modules of every class
in its argument types and of the kernels registered for that class (a policy may belong to another package), and all
modules that these import, directly or indirectly. An edit elsewhere compiles nothing.

This uses private parts of Numba: see ``tests/test_numba_assumptions.py``, and the range of versions in pyproject.toml.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import binding as llvm
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, compile_result
from numba.core.errors import NumbaError
from numpy.typing import NDArray

__all__ = [
    "Floats",
    "Ints",
    "forget_sources",
    "inline_kernel",
    "inner_kernel",
    "kernel",
    "locked_kernel",
    "name_apart",
    "register_kernels",
    "source_digest",
    "spliced_kernel",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
F = TypeVar("F", bound=Callable[..., Any])

# What Numba says of code that needs its memory manager, which kernels are compiled without.
ALLOCATES = ("NRT required", "Only accept returning of array passed")
INNER = "inner"  # the kind of a library in the cache, beside Numba's "object"
# What ``CompileResult._reduce`` returns after the library.
REDUCED_FIELDS = (
    "fndesc",
    "environment",
    "signature",
    "objectmode",
    "lifted",
    "type_annotation",
    "reload_init",
    "referenced_envs",
)


def kernel(function: F) -> F:
    """Compile a function of arrays and scalars; cached on disk, without the interpreter lock, in IEEE arithmetic.

    Kernels write to arrays that they receive and allocate none: without reference counting, passing arrays costs
    nothing. Division by zero gives inf or NaN as in NumPy, which allows the compiler to vectorise loops.

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
    return _explaining_allocation(_with_inner_twin(_compiled(function, no_cpython_wrapper=False)))


def locked_kernel(function: F) -> F:
    """Compile a kernel that keeps the interpreter lock; for calls of microseconds in a thread that must not wait.

    A kernel without the lock has to get it back at its end, and may wait for another thread for much longer than it
    takes itself.
    """
    return _explaining_allocation(_with_inner_twin(_compiled(function, no_cpython_wrapper=False, nogil=False)))


def inner_kernel(function: F) -> F:
    """Compile a kernel that only other kernels call, without machine code of its own: it compiles twice as fast."""
    return _without_python_calls(_compiled(function, no_cpython_wrapper=True, pipeline_class=_InnerCompiler))


def inline_kernel(function: F) -> F:
    """Compile an inner kernel that LLVM inlines in its callers; for kernels in which the call itself is measurable."""
    return _without_python_calls(
        _compiled(function, no_cpython_wrapper=True, forceinline=True, pipeline_class=_InnerCompiler)
    )


def spliced_kernel(function: F) -> F:
    """Compile a kernel as part of its caller, before type inference; for short kernels that call large ones.

    Every kernel with an entry point is one more LLVM module in which the kernels that it calls are optimised. A spliced
    kernel has no module of its own.
    """
    return _without_python_calls(
        cast(F, numba.njit(inline="always", nogil=True, error_model="numpy", _nrt=False)(function))
    )


def _with_inner_twin(compiled: F) -> F:
    """Make kernels call an inner kernel of the same function: machine code is made only for calls from Python."""

    @cache
    def twin() -> Any:
        return inner_kernel(dispatcher.py_func)

    dispatcher: Any = compiled
    if hasattr(dispatcher, "overloads"):
        dispatcher.get_call_template = lambda types, named: twin().get_call_template(types, named)
        dispatcher.get_overload = lambda signature: twin().get_overload(signature)
    return compiled


def _explaining_allocation(compiled: F) -> F:
    """Make a kernel that allocates raise TypeError that says so, instead of Numba's report of what it tried."""

    def compile_for_args(*arguments: Any, **named: Any) -> Any:
        try:
            return compile_with_numba(*arguments, **named)
        except NumbaError as error:
            if not any(sign in str(error) for sign in ALLOCATES):
                raise
            place = re.findall(r" at \S+ \(\d+\)", str(error))[-1:]  # a file and its line
            raise TypeError(
                f"a kernel allocates an array, a list or another object{''.join(place)}; kernels allocate nothing: "
                "allocate it in start, keep it in the state, and write into it"
            ) from None

    dispatcher: Any = compiled
    if hasattr(dispatcher, "overloads"):
        compile_with_numba = dispatcher._compile_for_args
        dispatcher._compile_for_args = compile_for_args
    return compiled


def _without_python_calls(compiled: F) -> F:
    """Make calls from Python raise TypeError: there is no entry point, and Numba would jump to an invalid address."""

    def refuse(*arguments: Any, **named: Any) -> Any:
        name = getattr(compiled, "__name__", "this kernel")
        raise TypeError(f"{name} is an inner kernel: only kernels can call it; from Python, call its .py_func")

    def add_overload(result: Any) -> None:
        dispatcher.overloads[tuple(result.signature.args)] = result

    dispatcher: Any = compiled
    if hasattr(dispatcher, "overloads"):
        dispatcher._compile_for_args = refuse
        dispatcher.add_overload = add_overload
    return compiled


def _compiled(function: F, **options: Any) -> F:
    options = {"nogil": True, **options}
    compiled = numba.njit(error_model="numpy", _nrt=False, no_cfunc_wrapper=True, **options)(function)
    if hasattr(compiled, "_cache"):  # with NUMBA_DISABLE_JIT it is a plain function
        # Without a writable folder for the cache, every process compiles again.
        with contextlib.suppress(RuntimeError):
            compiled._cache = _SourceAwareCache(function)
            compiled._cache.is_inner = options.get("pipeline_class") is _InnerCompiler
    return cast(F, compiled)


def register_kernels(
    verb: Callable[..., Any],
    implementations: dict[type, Callable[..., Any]],
    adapt: Callable[[Any], Any] | None = None,
    otherwise: Callable[..., Any] | None = None,
) -> None:
    """Make compiled code that calls ``verb(first, ...)`` call ``implementations[type(first)]``.

    ``first`` is an instance of a NamedTuple class. Numba keeps that class in the type, so the implementation is chosen
    at compile time. The verb has the same parameters as its implementations, or as what ``adapt`` makes of them.
    ``otherwise`` is called for classes without an implementation.
    """
    from numba.extending import overload

    _implementations.append(implementations)

    def choose(first: Any, *others: Any) -> Callable[..., Any] | None:
        chosen = implementations.get(getattr(first, "instance_class", object))
        if chosen is None:
            return otherwise
        return getattr(chosen := adapt(chosen) if adapt else chosen, "py_func", chosen)

    inner = {"pipeline_class": _InnerCompiler, "no_cfunc_wrapper": True, "forceinline": True}
    overload(verb, strict=False, jit_options=inner)(choose)  # strict also compares annotations


def name_apart(state_class: type) -> None:
    """Give a NamedTuple class a unique name, since Numba distinguishes such classes by name and fields only.

    Otherwise two policies whose files both call their state ``State`` would share one compiled loop. The name is an
    identifier, because a class that cannot be imported is rebuilt from its name where it is unpickled.
    """
    name = re.sub(r"\W", "_", f"{state_class.__module__}.{state_class.__qualname__}")
    while _unique_names.setdefault(name, state_class) is not state_class:
        name += "_"
    state_class.__name__ = name
    forget_sources()  # the class may be new because its file has been edited


_unique_names: dict[str, type] = {}
_implementations: list[dict[type, Callable[..., Any]]] = []


class _InnerLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The LLVM code of a kernel that only kernels call, without machine code.

    Numba optimises every kernel together with all kernels that it calls, and makes machine code of all of them, which
    nobody calls. Code in this library is linked into that of the callers, and optimised once for each outermost kernel.
    """

    def finalize(self) -> None:
        """Add the code of the kernels that this one calls."""
        for library in dict.fromkeys(self._linking_libraries):
            if hasattr(library, "_reload_init"):  # not in early releases
                self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: there is no machine code."""
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> _InnerLibrary:
        """This object, for its ``set_env``."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: an environment has Python objects, which kernels do not use."""

    def serialize_using_object_code(self) -> tuple[str, str, bytes]:
        """Return what the cache keeps: LLVM code."""
        return self.name, INNER, self._get_module_for_linking().as_bitcode()


class _InnerCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler, which writes to an inner library."""

    def define_pipelines(self) -> Any:
        state = self.state
        if state.library is None:
            state.library = _InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
            state.library.enable_object_caching()
        return super().define_pipelines()


class _CompileResultCache(CompileResultCacheImpl):  # type: ignore[misc]
    """What is kept of compiled kernels; an inner kernel is loaded without making machine code."""

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """Return what ``CompileResult._reduce`` was called with."""
        name, kind, code = payload[0]
        if kind != INNER:
            return super().rebuild(target_context, payload)
        kept = dict(zip(REDUCED_FIELDS, payload[1:], strict=True))
        library = _InnerLibrary(target_context.codegen(), name)
        library._final_module = library._shared_module = llvm.parse_bitcode(code)
        library._finalized = True
        return compile_result(
            target_context=target_context,
            typing_context=target_context.typing_context,
            library=library,
            entry_point=target_context.get_executable(library, kept["fndesc"], kept["environment"]),
            **kept,
        )


class _SourceAwareCache(FunctionCache):  # type: ignore[misc]
    """Numba's function cache, with a hash of every source that the function can reach as its key."""

    _impl_class = _CompileResultCache
    is_inner = False  # a kernel for Python and its inner twin share a file

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        return super().load_overload(sig, target_context) if self._is_cacheable(sig) else None

    def save_overload(self, sig: Any, data: Any) -> None:
        if self._is_cacheable(sig):
            super().save_overload(sig, data)

    def _is_cacheable(self, sig: Any) -> bool:
        """Whether another process can import all that the signature involves; sets the stamp of the cache file."""
        self._cache_file._source_stamp = source_digest(self._py_func.__module__)
        return _can_be_imported(self._py_func) and all(map(_can_be_imported, _behind(sig)))

    def _index_key(self, sig: Any, codegen: Any) -> str:
        parts = [
            str(sig),
            str(codegen.magic_tuple()),
            self._py_func.__code__.co_code.hex(),
            INNER if self.is_inner else "object",
        ]
        parts += [source_digest(module) for module in sorted({owner.__module__ for owner in _behind(sig)})]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _behind(types: Any) -> list[Any]:
    """Return all classes in the types, and the kernels that are registered for them."""
    classes = list(_classes_in(types))
    return classes + [known[owner] for known in _implementations for owner in classes if owner in known]


def _classes_in(types: Any) -> Iterator[type]:
    for t in types:
        if hasattr(t, "instance_class"):
            yield t.instance_class
        if isinstance(t, numba.types.BaseTuple):
            yield from _classes_in(t.types)


def _can_be_imported(owner: Any) -> bool:
    """Whether other processes find a class or function under the same name.

    What a script, a notebook or a function defines is compiled in every process: the next ``__main__`` is another one.
    """
    return owner.__module__ != "__main__" and hasattr(sys.modules.get(owner.__module__), owner.__qualname__)


def forget_sources() -> None:
    """Read source files again when the next digest is computed."""
    source_digest.cache_clear()
    _source_of.cache_clear()


@cache
def source_digest(module_name: str) -> str:
    """Return a hash of a module's source and of all modules it imports, directly or indirectly.

    Imports from its own package and from this one count; for a module outside a package, files in its folder do too.
    """
    own, top = __name__.partition(".")[0], module_name.partition(".")[0]
    homes = {own: Path(__file__).parents[1], top: _home_of(top)}
    beside = None if hasattr(sys.modules.get(top), "__path__") else homes[top]
    reached: dict[str, str] = {}
    pending = [module_name, __name__]
    while pending:
        name = pending.pop()
        home = homes.get(name.partition(".")[0], beside)
        if name not in reached and home is not None:
            reached[name], imports = _source_of(name, home)
            pending += imports
    return hashlib.sha256("\n".join(f"{name} {reached[name]}" for name in sorted(reached)).encode()).hexdigest()


def _home_of(package: str) -> Path:
    """Return the folder that contains a package or a single-file module."""
    module = sys.modules.get(package)
    places = [*getattr(module, "__path__", []), getattr(module, "__file__", None) or "."]
    return Path(places[0]).absolute().parent


@cache
def _source_of(module_name: str, home: Path) -> tuple[str, tuple[str, ...]]:
    """Return a hash of a module's source and the names that it imports; both empty if there is no such file."""
    place = home.joinpath(*module_name.split("."))
    package = place / "__init__.py"
    file = package if package.is_file() else place.with_name(f"{place.name}.py")
    if not file.is_file():
        return "", ()
    text = file.read_bytes()
    inside = module_name if file == package else module_name.rpartition(".")[0]
    return hashlib.sha256(text).hexdigest(), tuple(_imported(ast.parse(text).body, inside.split(".")))


def _imported(statements: Iterable[ast.stmt], package: list[str]) -> Iterator[str]:
    """Yield the modules that a source may import when it is loaded; ``from a import b`` may mean the module a.b."""
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
