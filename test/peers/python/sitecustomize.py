"""Loaded by every Python of the suite, those that its tests start included.

Numba 0.61 looks for NAME_v2 before NAME. CUDA 13 gave two functions a _v2 with one parameter more, which Numba does not
pass: it has to see the old ones alone.
"""

import ctypes

WITH_CONTEXT = {"cuCtxGetDevice_v2", "cuCtxSynchronize_v2"}
_find = ctypes.CDLL.__getattr__


def _find_old(library, name):
    if name in WITH_CONTEXT:
        raise AttributeError(name)
    return _find(library, name)


ctypes.CDLL.__getattr__ = _find_old
