"""The errors of localllm.

LocalLLMError                     exit code 1
├── OptionError                   2   an option that does not exist, or a value that it can't have
├── FileError                     3   a file that is missing, unreadable or not what it should be
│   ├── ModelNotFoundError        3   neither a file nor a known name
│   ├── DownloadError             3   a model could not be fetched, or its digest is wrong
│   ├── SavedLineError            3   a saved line of tokens that is damaged, or of another model, version or machine
│   └── GGUFError                 3   not a GGUF file, or one that breaks the format
│       └── TruncatedError        3   the file ends too early
├── UnsupportedError              4   an architecture, tensor type, tokenizer or operation that is not known here
│   └── TokenizerError            4   a vocabulary that can't be built or used
├── TemplateError                 5   a chat template that fails
├── ContextFullError              6   the tokens do not fit into the context
├── OutOfMemoryError              7   the model needs more memory than is free
└── BackendError                  8   a backend can't run on this machine, or a call failed in it

A message names the thing, its value, what was expected, and what to do.
"""

from __future__ import annotations


class LocalLLMError(Exception):
    """The root: whatever localllm raises on purpose is one of these."""

    exit_code = 1


class OptionError(LocalLLMError):
    """An option that does not exist, or a value that it can't have."""

    exit_code = 2


class FileError(LocalLLMError):
    """A file that is missing, unreadable or not what it should be."""

    exit_code = 3


class ModelNotFoundError(FileError):
    """A name that is neither a file nor in the catalogue."""


class DownloadError(FileError):
    """A model could not be fetched, or what came has the wrong digest."""


class SavedLineError(FileError):
    """A saved line of tokens that is damaged, or of another model, version or machine."""


class GGUFError(FileError):
    """Not a GGUF file, or one that breaks the format."""


class TruncatedError(GGUFError):
    """The file ends before what it announces."""


class UnsupportedError(LocalLLMError):
    """An architecture, tensor type, tokenizer or operation that is not known here."""

    exit_code = 4


class TokenizerError(UnsupportedError):
    """A vocabulary that can't be built or used."""


class TemplateError(LocalLLMError):
    """A chat template that fails, or that asks for something forbidden."""

    exit_code = 5


class ContextFullError(LocalLLMError):
    """The tokens do not fit into the context; nothing was computed or dropped."""

    exit_code = 6


class OutOfMemoryError(LocalLLMError):
    """The model needs more memory than is free."""

    exit_code = 7


class BackendError(LocalLLMError):
    """A backend can't run on this machine, or a call failed in it."""

    exit_code = 8
