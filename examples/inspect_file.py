"""Look into a model file: metadata, tensors, and how it cuts a text into tokens. No weights are loaded.

usage: python inspect_file.py MODEL.gguf [TEXT]
"""

import collections
import sys

import localllm

path = sys.argv[1]
text = sys.argv[2] if len(sys.argv) > 2 else "Hello, world!"

with localllm.open_gguf(path) as file:
    print(f"architecture: {file.metadata['general.architecture']}")
    sizes: collections.Counter[str] = collections.Counter()
    for tensor in file.tensors.values():
        sizes[tensor.type] += tensor.nbytes
    for type_, size in sizes.most_common():
        print(f"{type_}: {size / 1e6:.1f} MB")

tokenizer = localllm.Tokenizer.from_gguf(path)
for token in tokenizer.encode(text):
    print(token, tokenizer.decode([token], special=True))
