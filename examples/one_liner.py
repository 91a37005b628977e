"""Ask a model one question.

usage: python one_liner.py [MODEL [PROMPT]]
"""

import sys

import localllm

model = sys.argv[1] if len(sys.argv) > 1 else "smollm2:135m"
prompt = sys.argv[2] if len(sys.argv) > 2 else "Why is the sky blue?"

print(localllm.generate(model, prompt, max_tokens=64, seed=1))
