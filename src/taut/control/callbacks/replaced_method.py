"""Replace a method of one object for a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

Function = Callable[..., Any]


class Replaced:
    """Stands in for a method of an object until it is removed.

    Several may stand in for the same method and be removed in any order: those that are removed
    first pass calls on until the ones above them are gone. The method that the object had before,
    its own or that of its class, is put back. The signature is that of the method, for trainers
    that look at it.

    Parameters
    ----------
    owner, name
        The object and the name of its method.
    make
        Takes the method as it is now and returns the function that replaces it.
    """

    def __init__(self, owner: Any, name: str, make: Callable[[Function], Function]) -> None:
        self._attributes, self._name = vars(owner), name
        self._own = self._attributes.get(name)  # None: the method is that of the class
        self._before: Function = getattr(owner, name)
        self._now = make(self._before)
        update_wrapper(self, self._before, updated=())  # its signature, not its attributes
        self._attributes[name] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function that stands in for the method."""
        return self._now(*args, **kwargs)

    def remove(self) -> None:
        """Put the method back."""
        self._now = self._before
        top = self._attributes.get(self._name)
        while isinstance(top, Replaced) and top._now is top._before:
            if top._own is None:
                del self._attributes[self._name]
            else:
                self._attributes[self._name] = top._own
            top = top._own
