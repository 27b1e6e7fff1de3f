"""One row per request, the same in several arrays, so that compiled code finds all that is known of it."""

from collections.abc import Sequence

import numpy as np

from vllm_spec_plugin.jit import Floats, Ints

# The row of all requests that have none; nothing but zeros is in it.
NO_ROW = 0
_FIRST_ROWS = 64


class Column:
    """What one learner keeps per request.

    Attributes:
        values: [rows, ...], zeros where nothing was written. Another array after requests were added: not to be kept.
    """

    def __init__(self, num_rows: int, shape: tuple[int, ...]) -> None:
        """All zeros."""
        self.values: Floats = np.zeros((num_rows, *shape))


class RequestRows:
    """Gives requests their rows, and takes them back."""

    def __init__(self) -> None:
        """No request yet."""
        self._row_of: dict[str, int] = {}
        self._num_rows = _FIRST_ROWS
        self._free = list(range(_FIRST_ROWS - 1, NO_ROW, -1))
        self._columns: list[Column] = []

    def column(self, *shape: int) -> Column:
        """A new array with a row of that shape for each request."""
        column = Column(self._num_rows, shape)
        self._columns.append(column)
        return column

    def add(self, request_ids: Sequence[str]) -> Ints:
        """[n]: their rows; those that have none get one. Valid until one is forgotten."""
        try:
            return np.fromiter(map(self._row_of.__getitem__, request_ids), np.int64, len(request_ids))
        except KeyError:
            return np.array([self._add_one(request_id) for request_id in request_ids], np.int64)

    def forget(self, request_id: str) -> None:
        """Drops all that is known of a request; its row goes to the next one."""
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
