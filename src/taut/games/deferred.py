"""A field of an answer that is computed when it is first read."""

from __future__ import annotations

from functools import partial
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class Deferred(Generic[T]):
    """A field of a dataclass that holds its value, or a ``partial`` which computes it once.

    The arguments of the ``partial`` must be numbers or other constants: nobody may change what the
    value will be after the answer was given.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    @overload
    def __get__(self, answer: None, owner: type) -> Deferred[T]: ...
    @overload
    def __get__(self, answer: object, owner: type) -> T: ...
    def __get__(self, answer: Any, owner: type) -> Any:
        if answer is None:  # dataclasses ask for a default: there is none
            raise AttributeError(self._name)
        kept = vars(answer)
        value = kept[self._name]
        if isinstance(value, partial):
            value = kept[self._name] = value()
        return value

    def __set__(self, answer: object, value: T | partial[T]) -> None:
        vars(answer)[self._name] = value
