"""Two-player games from files and from the objects of other libraries."""
