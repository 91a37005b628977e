"""GGUF files: a bounded reader of metadata and tensor table; the data stays in the file until it is asked for."""

from localllm.gguf.file import GGUFFile, open_gguf
from localllm.gguf.strings import Strings
from localllm.gguf.tensors import Tensor

__all__ = ["GGUFFile", "Strings", "Tensor", "open_gguf"]
