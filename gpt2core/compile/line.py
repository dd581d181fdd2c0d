"""Size of a cache line: memory that different threads write lies at least so far apart."""

LINE_BYTES = 64
LINE = LINE_BYTES // 8  # int64
