"""A matrix for SciPy's iterative methods, and for what builds on its LinearOperator (PyLops)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

if TYPE_CHECKING:
    from ._matrix import Matrix


class StreamedOperator(LinearOperator):
    """``A`` with the products of a :class:`Matrix`; a block of vectors takes one sweep."""

    def __init__(self, A: Matrix, dtype: np.dtype[Any]) -> None:
        super().__init__(dtype, A.shape)
        self.A = A

    def _matvec(self, x: Any) -> Any:
        return self.A @ np.asarray(x).reshape(-1)

    def _rmatvec(self, x: Any) -> Any:
        return self.A.T @ np.asarray(x).reshape(-1)

    def _matmat(self, X: Any) -> Any:
        return self.A @ np.asarray(X)

    def _rmatmat(self, X: Any) -> Any:
        return self.A.T @ np.asarray(X)
