"""Functions that run inside a context manager, which the extension module makes of decorators."""

from __future__ import annotations

import functools
import inspect
from types import FunctionType

from floodmark import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any


def decorate(block: AbstractContextManager[Any], func: Any) -> Any:
    """Run every call of a function inside ``block``, which can be entered any number of times."""
    if isinstance(func, (staticmethod, classmethod)):
        return type(func)(decorate(block, func.__func__))
    if inspect.iscoroutinefunction(func):

        @functools.wraps(func)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with block:
                return await func(*args, **kwargs)

        return coroutine

    if inspect.isgeneratorfunction(func):

        @functools.wraps(func)
        def generator(*args: Any, **kwargs: Any) -> Any:
            with block:
                return (yield from func(*args, **kwargs))

        return generator

    if inspect.isasyncgenfunction(func):

        @functools.wraps(func)
        async def async_generator(*args: Any, **kwargs: Any) -> Any:
            inner = func(*args, **kwargs)
            step = inner.__anext__()
            while True:
                # Only while it runs: what its caller does between two items is not part of it.
                try:
                    with block:
                        item = await step
                except StopAsyncIteration:
                    return
                try:
                    sent = yield item
                except GeneratorExit:
                    with block:
                        await inner.aclose()
                    raise
                except BaseException as error:
                    step = inner.athrow(error)
                else:
                    step = inner.asend(sent)

        return async_generator

    @functools.wraps(func)
    def function(*args: Any, **kwargs: Any) -> Any:
        with block:
            return func(*args, **kwargs)

    return function


def profile(context: _native.ProfilerContext, func: Any) -> Any:
    """Profile every call of a function, under the name of the context or its own."""
    if isinstance(func, (staticmethod, classmethod)):
        return type(func)(profile(context, func.__func__))
    if not context.name:
        from floodmark.statistics import _get_descriptive_name_of_object

        context = _native.ProfilerContext(context.records, _get_descriptive_name_of_object(func))
    return profiled(context, func)


class _Steps:
    """Runs each step of a generator or coroutine as a step of a task."""

    __slots__ = ("_inner", "_task")

    def __init__(self, inner: Any, task: _native.ProfilerTask) -> None:
        self._inner = inner
        self._task = task

    def __iter__(self) -> _Steps:
        return self

    __await__ = __iter__

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        self._task.enter()
        try:
            return self._inner.send(value)
        finally:
            self._task.leave()

    def throw(self, *exception: Any) -> Any:
        self._task.enter()
        try:
            return self._inner.throw(*exception)
        finally:
            self._task.leave()

    def close(self) -> None:
        self._task.enter()
        try:
            self._inner.close()
        finally:
            self._task.leave()


def profiled(context: _native.ProfilerContext, func: Any) -> Any:
    """Profile every call of a function under the name of the context."""
    enter, leave = context.enter, context.leave

    if inspect.iscoroutinefunction(func):

        @functools.wraps(func)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            task = _native.ProfilerTask(context)
            try:
                return await _Steps(func(*args, **kwargs), task)
            finally:
                task.finish()

        return coroutine

    if inspect.isgeneratorfunction(func):

        @functools.wraps(func)
        def generator(*args: Any, **kwargs: Any) -> Any:
            task = _native.ProfilerTask(context)
            try:
                return (yield from _Steps(func(*args, **kwargs), task))
            finally:
                task.finish()

        return generator

    if inspect.isasyncgenfunction(func):

        @functools.wraps(func)
        async def async_generator(*args: Any, **kwargs: Any) -> Any:
            task = _native.ProfilerTask(context)
            inner = func(*args, **kwargs)
            step = inner.__anext__()
            try:
                while True:
                    try:
                        item = await _Steps(step, task)
                    except StopAsyncIteration:
                        return
                    try:
                        sent = yield item
                    except GeneratorExit:
                        await _Steps(inner.aclose(), task)
                        raise
                    except BaseException as error:
                        step = inner.athrow(error)
                    else:
                        step = inner.asend(sent)
            finally:
                task.finish()

        return async_generator

    if isinstance(func, FunctionType) and not func.__code__.co_kwonlyargcount:
        code = func.__code__
        if not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            return functools.update_wrapper(_same_parameters(enter, leave, func), func)

    @functools.wraps(func)
    def function(*args: Any, **kwargs: Any) -> Any:
        enter()
        try:
            return func(*args, **kwargs)
        finally:
            leave()

    return function


@functools.cache
def _maker(count: int) -> Callable[..., FunctionType]:
    """Make functions of ``count`` parameters that call another one between entering and leaving."""
    names = ", ".join(f"_floodmark_{number}" for number in range(count))
    source = f"""
def make(_floodmark_enter, _floodmark_leave, _floodmark_func):
    def function({names}):
        _floodmark_enter()
        try:
            return _floodmark_func({names})
        finally:
            _floodmark_leave()
    return function
"""
    scope: dict[str, Any] = {}
    exec(compile(source, __file__, "exec"), scope)
    made: Callable[..., FunctionType] = scope["make"]
    return made


def _same_parameters(enter: Any, leave: Any, func: FunctionType) -> FunctionType:
    """Wrap a function in one with its own parameters, which takes no tuple and no dictionary for each call."""
    code = func.__code__
    count = code.co_argcount
    function = _maker(count)(enter, leave, func)
    function.__code__ = function.__code__.replace(
        co_varnames=code.co_varnames[:count], co_posonlyargcount=code.co_posonlyargcount
    )
    function.__defaults__ = func.__defaults__
    return function
