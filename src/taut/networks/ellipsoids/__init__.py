"""Ellipsoids: how far everything in a smooth network moves together, carried forwards in l2."""
