"""The argument records of loading."""

from __future__ import annotations

from localllm.backends.cpu.arguments_matmul import REPACK
from localllm.backends.cpu.records import Record

LOAD = Record(
    "read",  # address of a function like pread(2): (file, to, count, offset) -> bytes read, 0 at the end, negative where it fails
    "pieces",  # PIECE records
    "count",  # how many there are
    "buffers",  # a buffer for each thread
    "buffer_bytes",  # from one to the next
    "loaded",  # bytes of the file that are packed so far: kept by the kernel
)
PIECE = Record(
    "file",  # what ``read`` calls the file
    "offset",  # first byte in it
    "bytes",
    "pack",  # address of the kernel that packs
    "done",  # 1 once it is packed
    *REPACK.names,  # its arguments, but for ``src``, which is the thread's buffer
)
