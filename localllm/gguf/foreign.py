"""Files that are called .gguf and are something else: what they are, and what to do about it."""

from __future__ import annotations

from localllm.gguf.source import quote

HEAD = 512
"""Bytes of the start of a file that ``recognise`` wants."""

_PAGE = "a web page, not a model; download the file itself (on Hugging Face the link with /resolve/, not /blob/)"
_OLD = "a model in a format that GGUF replaced in 2023; get a GGUF file of this model, or convert it again"
_PICKLE = "a PyTorch checkpoint (a pickle, which could run code); get a GGUF file of this model, or convert it with llama.cpp"
_PACKED = "compressed; unpack it first"
_MAGICS = {
    b"version https://git-lfs": "a Git LFS pointer, not the model itself; fetch it with 'git lfs pull', or download the file",
    b"PK\x03\x04": "a zip archive, such as a PyTorch checkpoint; get a GGUF file of this model, or convert it with llama.cpp",
    b"\x80\x02": _PICKLE,
    b"\x80\x04": _PICKLE,
    b"lmgg": _OLD,
    b"fmgg": _OLD,
    b"tjgg": _OLD,
    b"algg": _OLD,
    b"\x89HDF": "an HDF5 file; get a GGUF file of this model",
    b"\x1f\x8b": _PACKED,
    b"\xfd7zXZ": _PACKED,
    b"BZh": _PACKED,
    b"7z\xbc\xaf": _PACKED,
    b"\x28\xb5\x2f\xfd": _PACKED,
}


def recognise(head: bytes, size: int) -> str:
    """What a file of ``size`` bytes that begins with ``head``, and not as a GGUF file does, is: "is ...; advice"."""
    if not head:
        return "is empty; fetch the file again"
    for magic, kind in _MAGICS.items():
        if head.startswith(magic):
            return f"is {kind}"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= size - 8:
        return "is a safetensors file; get a GGUF file of this model, or convert it with llama.cpp"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head", b"<!--")):
        return f"is {_PAGE}"
    if not any(head):
        return "begins with zeros, as a download that is not finished does; fetch the file again"
    if _is_text(head):
        return f"is text, not a model; it says {quote(head.decode('utf-8', 'replace').strip(), 80)}"
    return f"is not a GGUF file: it begins with {head[:4].hex(' ')}, expected 47 47 55 46 (GGUF)"


def _is_text(head: bytes) -> bool:
    text = head.decode("utf-8", "replace")
    # The last character may be cut.
    return "\ufffd" not in text[:-3] and all(c.isprintable() or c.isspace() for c in text)
