"""The decorators of compiled functions, and where their machine code is kept.

Kernels write to arrays that they receive and allocate none: without reference counting, passing arrays costs nothing.
Division by zero gives inf or NaN as in NumPy, which allows the compiler to vectorise loops.

Numba's own cache notices an edit of the file of a function, but not of the functions that it calls. So the cache is a
folder whose name is a digest of all sources that kernels share. Kernels elsewhere, and code for the states or users of
another package, are kept in a folder whose name has a digest of that room or package as well. What a script, a notebook
or a function defines is compiled in every process.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, wraps
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core.errors import NumbaError
from numba.extending import overload
from numpy.typing import NDArray

__all__ = ["SOURCES_DIGEST", "Floats", "Ints", "inner_kernel", "kernel", "register_kernels"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
F = TypeVar("F", bound=Callable[..., Any])

HERE = Path(__file__).parent
ROOMS = ("core.py", "kernels.py", "arena/loop.py", "geometry", "policies", "statistics", "worlds")
DAY = 86_400  # seconds after which the folder of other sources is deleted, if no process has used it
# What Numba says of code that needs its memory manager, which kernels are compiled without.
ALLOCATES = ("NRT required", "Only accept returning of array passed")
UNTRIED = (0, 69)  # from this release of Numba on, inner kernels are compiled by its public parts alone


def kernel(function: F, nogil: bool = True) -> F:
    """Compile a function of arrays and scalars, which Python and other kernels call.

    It is compiled when it is first called, for the types of its arguments, and kept on disk. It runs without the
    interpreter lock. ``nogil=False`` is for calls of microseconds in a thread that must not wait: a kernel has to get
    the lock back at its end, and may wait for another thread for much longer than it takes itself.

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
    # One for each combination of classes: Numba takes two classes of one name and the same fields for one.
    compiled_for = cache(lambda *classes: _compiled(function, classes, nogil))

    def call(*arguments: Any, **named: Any) -> Any:
        compiled = compiled_for(*_classes_in(arguments))
        try:
            return compiled(*arguments, **named)
        except NumbaError as error:
            if not any(sign in str(error) for sign in ALLOCATES):
                raise
            place = re.findall(r" at \S+ \(\d+\)", str(error))[-1:]  # a file and its line
        raise TypeError(
            f"a kernel allocates an array, a list or another object{''.join(place)}; kernels allocate nothing: "
            "allocate it in start, keep it in the state, and write into it"
        )

    return _known_to_kernels(call, function)


def inner_kernel(function: F) -> F:
    """Compile a function that only kernels call, as part of their code."""

    def refuse(*arguments: Any, **named: Any) -> Any:
        name = function.__name__
        raise TypeError(f"{name} is an inner kernel: only kernels can call it; from Python, call its .py_func")

    return _known_to_kernels(refuse, function)


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

    def choose(first: Any, *others: Any) -> Callable[..., Any] | None:
        chosen = implementations.get(getattr(first, "instance_class", object))
        if chosen is None:
            return otherwise
        return getattr(chosen := adapt(chosen) if adapt else chosen, "py_func", chosen)

    overload(verb, strict=False, jit_options=INNER | {"forceinline": True})(choose)  # strict compares annotations


def _known_to_kernels(from_python: Callable[..., Any], function: F) -> F:
    """Return what Python calls, for which compiled code calls ``function``; or that, if nothing is compiled."""
    if numba.config.DISABLE_JIT:
        return function
    known: Any = wraps(function)(from_python)
    known.py_func = function
    overload(known, strict=False, jit_options=INNER)(lambda *arguments, **named: function)
    return cast(F, known)


def _inner_compiler() -> dict[str, Any]:
    """Return the option for compiling a kernel without machine code, where the release of Numba is known to allow it.

    Numba optimises every kernel together with all kernels that it calls, and makes machine code of all of them, which
    nobody calls. Here the code of an inner kernel is linked into that of its callers, and is optimised once for each
    outermost kernel: that halves the time.
    """
    if tuple(int(part) for part in numba.__version__.split(".")[:2]) >= UNTRIED:
        return {}
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler import Compiler

    class InnerLibrary(JITCodeLibrary):  # type: ignore[misc]
        def finalize(self) -> None:
            """Add the code of the kernels that this one calls."""
            for library in dict.fromkeys(self._linking_libraries):
                if hasattr(library, "_reload_init"):  # not in early releases
                    self._reload_init.update(library._reload_init)
                self._final_module.link_in(library._get_module_for_linking(), preserve=True)
            self._finalize_dynamic_globals()
            self._finalized = True

        def get_pointer_to_function(self, name: str) -> int:
            return 0  # there is no machine code

        @property
        def codegen(self) -> InnerLibrary:
            return self

        def set_env(self, name: str, environment: Any) -> None:
            """Do nothing: an environment has Python objects, which kernels do not use."""

    class InnerCompiler(Compiler):  # type: ignore[misc]
        def define_pipelines(self) -> Any:
            if self.state.library is None:
                self.state.library = InnerLibrary(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
                self.state.library.enable_object_caching()
            return super().define_pipelines()

    return {"pipeline_class": InnerCompiler}


OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
INNER = OPTIONS | _inner_compiler()


def _classes_in(values: Iterable[Any]) -> list[type]:
    """Return the classes of the tuples among some values, and of the tuples in these."""
    classes, pending = [], list(values)
    for value in pending:
        if isinstance(value, tuple):
            classes.append(type(value))
            pending += value
    return classes


def _compiled(function: Callable[..., Any], classes: Iterable[type], nogil: bool) -> Any:
    options, owners = OPTIONS | {"nogil": nogil}, [function, *(c for c in classes if c is not tuple)]
    folder = _folder(owners) if all(map(_can_be_imported, owners)) else None
    if folder is None:
        return numba.njit(**options)(function)
    with _configured:
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder)
        try:
            return numba.njit(cache=True, **options)(function)
        finally:
            numba.config.CACHE_DIR = before


_configured = Lock()


def _can_be_imported(owner: Any) -> bool:
    """Whether other processes find a class or function under the same name."""
    module = sys.modules.get(owner.__module__)
    return owner.__module__ not in ("__main__", "__mp_main__") and hasattr(module, owner.__qualname__)


def _folder(owners: Iterable[Any]) -> Path | None:
    """Return the folder for code of these classes and functions, or None if no folder can be written.

    It is in NUMBA_CACHE_DIR, if that is set; else in the package, or in the user's folder for caches.
    """
    homes = {_home(owner.__module__) for owner in owners if Path(_file(owner.__module__)) not in SOURCES}
    name = "-".join(["kernels", SOURCES_DIGEST, *(_digest(files) for files in sorted(homes))])
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bothworlds"
    for place in [Path(numba.config.CACHE_DIR)] if numba.config.CACHE_DIR else [HERE / "__pycache__", user]:
        try:
            return _made(place / name)
        except OSError:
            continue
    return None


@cache
def _made(folder: Path) -> Path:
    """Make a folder, and delete those like it that no process has used for a day; raises OSError if it cannot."""
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    with suppress(FileNotFoundError):  # another process does the same
        for other in folder.parent.glob("kernels-*"):
            if other.stat().st_mtime < time.time() - DAY:
                shutil.rmtree(other, ignore_errors=True)
    return folder


def _file(module: str) -> str:
    return getattr(sys.modules.get(module), "__file__", None) or ""


def _home(module: str) -> tuple[Path, ...]:
    """Return all sources of the room or package of a module; of a single module, those beside it."""
    own = module.startswith(f"{__package__}.")
    top = ".".join(module.split(".")[: 1 + own])
    folders = getattr(sys.modules.get(top), "__path__", None)
    if folders is None:
        return tuple(sorted(Path(_file(top)).parent.glob("*.py")))
    return tuple(sorted(file for folder in folders for file in Path(folder).rglob("*.py")))


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:16]


SOURCES = sorted(file for room in ROOMS for file in [HERE / room, *(HERE / room).rglob("*.py")] if file.is_file())
SOURCES_DIGEST = _digest(SOURCES)  # of the files as they were when they were loaded
