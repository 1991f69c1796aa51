"""Profile every function of a package without changing it.

>>> import floodmark
>>> floodmark.profile_package("json")
>>> import json
>>> json.loads("[1, 2]")
[1, 2]
>>> [name for name in floodmark.get_memory_records() if "loads" in name]  # doctest: +ELLIPSIS
['json/__init__.py:...(loads)']
>>> floodmark.unprofile_package("json")

A profiled function costs nothing more once its package is not profiled any more: it is then the original one.
"""

from __future__ import annotations

import contextlib
import os
import sys
from types import CodeType, FunctionType, ModuleType

from floodmark import _native, statistics
from floodmark._decorate import profiled
from floodmark.statistics import ProfilerRecords, default_profiler_records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, TextIO

__all__ = [
    "describe_option",
    "get_memory_records",
    "get_option",
    "option_context",
    "print_memory_report",
    "profile_package",
    "set_option",
    "unprofile_package",
]

# Methods with two underscores on each side that are profiled.
_SPECIAL = {"__call__", "__getitem__", "__init__", "__setitem__"}


# What a function that only returns an attribute or a constant consists of.
_READING = (
    "CACHE COPY_FREE_VARS LOAD_ATTR LOAD_CONST LOAD_DEREF LOAD_FAST LOAD_FAST_BORROW LOAD_GLOBAL LOAD_SMALL_INT NOP "
    "POP_TOP RESUME RETURN_CONST RETURN_VALUE"
)


def _only_reads(code: CodeType) -> bool:
    """Whether a function calls nothing and computes nothing, and so allocates nothing itself.

    Such functions are nearly a quarter of the calls in pandas.
    """
    global _reading
    if not _reading:
        from opcode import opmap

        _reading = frozenset(opmap[name] for name in _READING.split() if name in opmap)
    return _reading.issuperset(code.co_code[::2])


_reading: frozenset[int] = frozenset()


class _Package:
    """A package that is to be profiled, and what was replaced in it."""

    def __init__(self, name: str, include: Iterable[str], exclude: Iterable[str], records: ProfilerRecords) -> None:
        self.name = name
        self.include = tuple(include)
        self.exclude = tuple(exclude)
        self.records = records
        # (owner, attribute, original)
        self.replaced: list[tuple[Any, str, Any]] = []
        # Wrappers by the identity of the original, which is kept alive.
        self.wrappers: dict[int, tuple[Any, Any]] = {}
        self.folder = ""

    def holds(self, module: str) -> bool:
        return module == self.name or module.startswith(self.name + ".")

    def wants(self, module: str, qualname: str) -> bool:
        last = qualname.rpartition(".")[2]
        if last.startswith("_") and last not in _SPECIAL:
            return False
        import fnmatch

        name = f"{module}.{qualname}"
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.exclude):
            return False
        return not self.include or any(fnmatch.fnmatchcase(name, pattern) for pattern in self.include)

    def install(self) -> None:
        """Profile all modules of the package that are loaded."""
        for name in [name for name in sys.modules if self.holds(name)]:
            self.instrument(sys.modules[name])
        self.replace_aliases()

    def remove(self) -> None:
        for owner, attribute, original in reversed(self.replaced):
            with contextlib.suppress(AttributeError, TypeError):
                setattr(owner, attribute, original)
        self.replaced.clear()
        self.wrappers.clear()

    def instrument(self, module: Any) -> None:
        if not isinstance(module, ModuleType):
            return
        if not self.folder:
            root = sys.modules.get(self.name)
            file = getattr(root, "__file__", None)
            if file:
                folder = os.path.dirname(os.path.abspath(file))
                is_package = hasattr(root, "__path__")
                self.folder = os.path.dirname(folder) if is_package else folder
        for attribute, value in list(vars(module).items()):
            if getattr(value, "__module__", None) != module.__name__:
                continue
            if isinstance(value, FunctionType):
                self.replace(module, attribute, value, self.wrap(value))
            elif isinstance(value, type):
                self.instrument_class(value, module.__name__, set())

    def instrument_class(self, cls: type, module: str, seen: set[type]) -> None:
        if cls in seen:
            return
        seen.add(cls)
        for attribute, value in list(vars(cls).items()):
            if isinstance(value, FunctionType):
                self.replace(cls, attribute, value, self.wrap(value))
            elif type(value) in (classmethod, staticmethod) and isinstance(value.__func__, FunctionType):
                wrapped = self.wrap(value.__func__)
                if wrapped is not value.__func__:
                    self.replace(cls, attribute, value, type(value)(wrapped))
            elif type(value) is property:
                parts = [value.fget, value.fset, value.fdel]
                wrapped = [self.wrap(part) if isinstance(part, FunctionType) else part for part in parts]
                if any(new is not old for new, old in zip(wrapped, parts)):
                    self.replace(cls, attribute, value, property(wrapped[0], wrapped[1], wrapped[2], value.__doc__))
            elif isinstance(value, type) and value.__module__ == module:
                self.instrument_class(value, module, seen)

    def replace(self, owner: Any, attribute: str, original: Any, new: Any) -> None:
        if new is original:
            return
        with contextlib.suppress(AttributeError, TypeError):
            setattr(owner, attribute, new)
            self.replaced.append((owner, attribute, original))

    def replace_aliases(self) -> None:
        """Replace functions under the names by which other modules of the package imported them."""
        for name in [name for name in sys.modules if self.holds(name)]:
            module = sys.modules[name]
            for attribute, value in list(getattr(module, "__dict__", {}).items()):
                if isinstance(value, FunctionType) and id(value) in self.wrappers:
                    self.replace(module, attribute, value, self.wrappers[id(value)][1])

    def wrap(self, function: FunctionType) -> Any:
        """The profiled function; the function itself if it is not to be profiled, or is already."""
        if id(function) in self.wrappers:
            return self.wrappers[id(function)][1]
        if hasattr(function, "__floodmark__") or not self.wants(function.__module__ or "", function.__qualname__):
            return function
        code = function.__code__
        if _only_reads(code):
            return function
        file = code.co_filename
        if self.folder and file.startswith(self.folder + os.sep):
            file = file[len(self.folder) + 1 :]
        name = f"{file}:{code.co_firstlineno}({function.__qualname__})"
        wrapper = profiled(_native.ProfilerContext(self.records, name), function)
        wrapper.__floodmark__ = True
        self.wrappers[id(function)] = (function, wrapper)
        return wrapper


class _Finder:
    """Profiles modules of the packages when they are imported."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        package = _packages.get(name.partition(".")[0])
        if package is None or not package.holds(name) or not _is_on():
            return None
        for finder in sys.meta_path:
            if finder is cls:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                break
        else:
            return None
        import importlib.machinery

        if isinstance(spec.loader, (importlib.machinery.SourceFileLoader, importlib.machinery.SourcelessFileLoader)):
            spec.loader = _Loader(spec.loader, package)  # type: ignore[assignment]
        return spec


class _Loader:
    """Loads a module and profiles it."""

    def __init__(self, loader: Any, package: _Package) -> None:
        self._loader = loader
        self._package = package

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        if module.__name__ == self._package.name:
            self._package.install()
        elif not _is_loading(self._package.name):
            self._package.instrument(module)
            self._package.replace_aliases()


def _is_loading(name: str) -> bool:
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


_packages: dict[str, _Package] = {}
_options: dict[str, Any] = {}


def _from_environment(text: str | None) -> bool:
    if text is None:
        return False
    text = text.strip().lower()
    if text in ("true", "on"):
        return True
    try:
        return bool(int(text))
    except ValueError:
        return False


def _is_on() -> bool:
    return bool(_options["memory_profiling"])


def _update() -> None:
    """Bring what is installed in line with the packages and the option."""
    is_installed = _Finder in sys.meta_path
    if _is_on() and _packages:
        if not is_installed:
            sys.meta_path.insert(0, _Finder)
        for package in _packages.values():
            package.install()
    else:
        if is_installed:
            sys.meta_path.remove(_Finder)
        for package in _packages.values():
            package.remove()


def profile_package(
    package: str | ModuleType,
    *,
    include: Iterable[str] = (),
    exclude: Iterable[str] = ("*.tests.*",),
    records: ProfilerRecords = default_profiler_records,
    numpy: bool = True,
) -> None:
    """Profile the public functions, methods and properties of a package, loaded or not.

    Those that only return an attribute or a constant are left alone, and so are those that are not written in Python.
    Statistics are enabled, and NumPy's memory comes from the current resource from then on, unless ``numpy`` is false.

    Parameters
    ----------
    package
        The package, or its name.
    include, exclude
        Patterns of full names (``"pandas.core.frame.*"``); all public ones are included by default.
    records
        Where calls, peak and total bytes go.
    """
    name = package.__name__ if isinstance(package, ModuleType) else package
    if name in _packages:
        _packages[name].remove()
    _packages[name] = _Package(name, include, exclude, records)
    statistics.enable_statistics()
    if numpy:
        _install_numpy()
    _options["memory_profiling"] = True
    _update()


def unprofile_package(package: str | ModuleType) -> None:
    """Put the original functions of a package back."""
    name = package.__name__ if isinstance(package, ModuleType) else package
    known = _packages.pop(name, None)
    if known is not None:
        known.remove()
    _update()


def _install_numpy() -> None:
    import importlib.util

    if importlib.util.find_spec("numpy") is None:
        return
    import floodmark.numpy

    with contextlib.suppress(RuntimeError):  # memory of a GPU
        floodmark.numpy.install()


def get_option(name: str) -> Any:
    """Return the value of an option."""
    return _options[_known(name)]


def set_option(name: str, value: Any) -> None:
    """Set an option: ``set_option("memory_profiling", True)`` profiles the packages of ``profile_package``.

    >>> import floodmark
    >>> floodmark.set_option("memory_profiling", False)
    >>> floodmark.get_option("memory_profiling")
    False
    """
    _known(name)
    if value not in (True, False):
        raise ValueError(f"{value!r} is no value of {name}; use True or False")
    _options[name] = bool(value)
    _update()


def describe_option(name: str | None = None) -> None:
    """Print what options are for."""
    for known in _options if name is None else [_known(name)]:
        print(f"{known}:\n\t{_DESCRIPTIONS[known]}\n\t[Default: False] [Current: {_options[known]}]")


def option_context(name: str, value: Any) -> contextlib.AbstractContextManager[None]:
    """Set an option for a block."""
    return _set_for_a_block(get_option, set_option, name, value)


@contextlib.contextmanager
def _set_for_a_block(get: Callable[..., Any], put: Callable[..., None], name: str, value: Any) -> Iterator[None]:
    before = get(name)
    put(name, value)
    try:
        yield
    finally:
        put(name, before)


def _known(name: str) -> str:
    if name not in _options:
        raise KeyError(f"{name!r} is no option; there are {', '.join(_options)}")
    return name


_DESCRIPTIONS = {
    "memory_profiling": "If set to `True`, the functions of packages that `profile_package` named are profiled.",
}
_options["memory_profiling"] = _from_environment(os.environ.get("CUDF_MEMORY_PROFILING"))


def get_memory_records() -> dict[str, ProfilerRecords.MemoryRecord]:
    """Return the records of all functions and code blocks that were profiled, by name."""
    return default_profiler_records.records


def print_memory_report(file: TextIO | None = None) -> None:
    """Print the records as a table, those with the highest peak first."""
    print(default_profiler_records.report(), file=sys.stdout if file is None else file)
