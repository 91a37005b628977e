"""The argument records of the kernels around matrices."""

from __future__ import annotations

from localllm.backends.cpu.records import Record

MATMUL = Record(
    "w",  # packed matrix
    "records",  # records in a row: K / qk; for floats K
    "x",  # activations: column tiles; for floats rows of float32
    "x_bytes",  # bytes of a column tile; for floats of a row
    "init",  # what is added: float32 row of the bias, of zeros, or of the residual
    "init_stride",  # bytes from one row of it to the next: 0 where all rows have the same
    "out",  # y
    "out_stride",  # bytes from one row of it to the next
    "groups",  # groups of 64 rows of the matrix
    "rows",  # address of T
)
QUANTISE = Record(
    "x",  # float32 rows
    "x_stride",  # bytes from one to the next
    "blocks",  # K / 32
    "norm",  # RMSNorm weight, or 0: none
    "n",  # true width, for the norm's mean
    "eps",  # bits of the norm's float32 eps
    "normed",  # where normed rows go, float32 with the stride of x's width
    "normed_stride",
    "out",  # column tiles
    "out_bytes",  # bytes of one
    "rows",  # address of T
)
GATED = Record(
    "gate",  # float32 rows
    "gate_stride",
    "up",
    "up_stride",
    "blocks",  # K / 32
    "out",  # column tiles
    "out_bytes",  # bytes of one
    "rows",  # address of T
)
EMBED = Record(
    "w",  # packed matrix
    "records",  # records in a row; for floats K
    "scale",  # bits of a float32 factor
    "out",
    "out_stride",
)
GATHER = Record(
    "x",  # float32 rows of the batch
    "x_stride",
    "out",  # the wanted ones
    "out_stride",
    "bytes",  # of a row, a multiple of 64
)
REPACK = Record(
    "src",  # rows as in the file
    "row_bytes",  # bytes from one to the next
    "rows",  # how many there are
    "records",  # records in a row; for floats K
    "dst",  # where the first group goes
)
EXPERTS = Record(
    "w",  # the experts' packed matrices, one behind another
    "expert_bytes",  # bytes of one
    "records",  # records in a row; for floats columns
    "x",  # activations in column tiles of one; for floats rows of float32
    "x_bytes",  # bytes from one to the next
    "ids",  # int64 [T][used]: which experts a row takes
    "weights",  # float32 [T][used]: how much of each
    "used",
    "zeros",  # address of 64 zeros
    "out",  # expert_rows: row i*used + s is slot s of row i; expert_sum: row i
    "out_stride",
    "groups",  # groups of 64 rows of one expert
    "rows",  # address of T
)
PEAK = Record(
    "memory",  # what is read
    "piece",  # bytes at once, a multiple of 256
    "pieces",  # how many pieces of work
    "rounds",  # of dot products in a piece
)
