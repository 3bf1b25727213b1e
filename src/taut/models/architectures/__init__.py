"""Where each architecture keeps the maps, heads, scale and norms of its attention: a file each.

:mod:`~taut.models.architectures.description` has the words in which it is said,
:mod:`~taut.models.architectures.registry` finds the right file for a module, and
:mod:`~taut.models.architectures.usual_names` is for modules that none describes.
"""
