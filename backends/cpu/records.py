"""The records that Python fills and kernels read: tables of 64-bit words, named by their index.

The tape is a table of rows (FUNCTION, ARGS, COUNTER, BARRIER); a kernel gets the addresses of its row's arguments, of the state, of the
row's work counter, and its thread's number. A row with BARRIER 0 lets threads go on to the next row before all have finished it.
"""

from __future__ import annotations

import struct

WORD = 8
LINE = 64
"""Bytes of a cache line; counters stand one to a line."""

TAPE_WORDS = 4
FUNCTION, ARGS, COUNTER, BARRIER = range(TAPE_WORDS)

TILE = 64
"""Keys in a tile of attention and tokens in a page of the cache: aligned to absolute positions, so that sums don't depend on the batch."""
QUERIES = 16
"""Query rows that attention over many rows takes at once."""

STATE_WORDS = 32
(
    ROWS,  # T: rows of the batch
    WANTED,  # W: rows whose results are wanted
    TOKENS,  # int64[T]: token ids
    POSITIONS,  # int64[T]: absolute position of each row
    PAGES,  # int64[T]: for each row the address of its line's page table, an int64[tiles][kinds] of page addresses
    WANT,  # int64[W]: the batch rows that are wanted
    QUERY_TILES,  # int64[NQ][4]: first row, number of rows (1..QUERIES), position of the first, page table: rows of one line in order
    NQ,  # number of query tiles
    PARTIALS,  # float32 scratch of attention over few rows, shared
    KEY_TILES,  # how many key tiles PARTIALS has room for, per row and head
    SCRATCH,  # scratch of thread 0, aligned to 64
    SCRATCH_BYTES,  # distance from one thread's scratch to the next
    ROPES,  # four words: addresses of tables of cosines and sines, float32[positions][dim]: dim/2 cosines, dim/2 sines
    _ROPE1,
    _ROPE2,
    _ROPE3,
    THREADS,  # how many threads run the job
    ASKED,  # how many of the likeliest tokens are asked for of each wanted row; 0: none
    PROGRAM_END,
) = range(19)

SYNC_WORDS = 8 * 8
"""The words that threads meet on, a cache line each."""
ARRIVED, PHASE, SLEEPERS, JOB, IDLE, WORKERS = (8 * i for i in range(6))
"""Barrier: threads that arrived, its generation, threads asleep in it. JOB: number of the present job, odd while it is being written;
IDLE: workers that may be asleep; WORKERS: how many there are."""
JOB_TAPE, JOB_ROWS, JOB_STATE, JOB_THREADS = range(48, 52)
"""The job: address of its tape, number of rows, address of its state, how many threads run it."""
ABORTED, DONE = 56, 57
"""The phase behind which the last job that was given up ends; the rows that the caller has done of the present one, -1 where there is
none."""


class Record:
    """The words of one kernel's arguments, in order; what the words mean stands where the record is defined."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.offsets = tuple(WORD * i for i in range(len(names)))
        """Byte offsets, for the kernel."""

    def fill(self, **values: int) -> list[int]:
        """The words, every one of them given by name."""
        assert values.keys() == set(self.names), (values.keys() ^ set(self.names), self.names)
        return [int(values[name]) for name in self.names]


def float_bits(x: float) -> int:
    """A float32 as a word of a record."""
    return int(struct.unpack("<i", struct.pack("<f", x))[0])
