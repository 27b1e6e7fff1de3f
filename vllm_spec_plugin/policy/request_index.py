"""Assigns each request a row, the same in several arrays, so that compiled code finds its state by index."""

from collections.abc import Sequence

import numpy as np

from vllm_spec_plugin.jit import Floats, Ints

# The row of all requests without a row of their own: zeros.
NO_ROW = 0
_FIRST_ROWS = 64


class Column:
    """One model's state per request.

    Attributes:
        values: [rows, ...], zeros at first; adding requests may replace the array.
    """

    def __init__(self, num_rows: int, shape: tuple[int, ...]) -> None:
        """Creates zeros."""
        self.values: Floats = np.zeros((num_rows, *shape))


class RequestRows:
    """Assigns rows to requests, and frees them."""

    def __init__(self) -> None:
        """Starts without requests."""
        self._row_of: dict[str, int] = {}
        self._num_rows = _FIRST_ROWS
        self._free = list(range(_FIRST_ROWS - 1, NO_ROW, -1))
        self._columns: list[Column] = []

    def column(self, *shape: int) -> Column:
        """Creates an array with a row of that shape per request."""
        column = Column(self._num_rows, shape)
        self._columns.append(column)
        return column

    def add(self, request_ids: Sequence[str]) -> Ints:
        """Returns [n], rows of the requests, new ones included; valid until one is forgotten."""
        try:
            return np.fromiter(map(self._row_of.__getitem__, request_ids), np.int64, len(request_ids))
        except KeyError:
            return np.array([self._add_one(request_id) for request_id in request_ids], np.int64)

    def forget(self, request_id: str) -> None:
        """Clears and frees the row of a request."""
        row = self._row_of.pop(request_id, None)
        if row is not None:
            for column in self._columns:
                column.values[row] = 0
            self._free.append(row)

    def _add_one(self, request_id: str) -> int:
        row = self._row_of.get(request_id)
        if row is None:
            if not self._free:
                self._grow()
            row = self._row_of[request_id] = self._free.pop()
        return row

    def _grow(self) -> None:
        for column in self._columns:
            column.values = np.concatenate([column.values, np.zeros_like(column.values)])
        self._free = list(range(2 * self._num_rows - 1, self._num_rows - 1, -1))
        self._num_rows *= 2
