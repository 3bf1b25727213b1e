"""The interactive page: softmax, attention and games to play with.

One HTML file that needs no server and no network. :func:`page` is its text and :func:`write_page`
writes it somewhere, and :func:`open_address` is what to open in a browser; on the command line,
``taut explore`` does. ``sources/`` holds what it is built from, by
``python -m taut.explore.build``.
"""

from taut.explore.page import open_address, page, write_page

__all__ = ["open_address", "page", "write_page"]
