"""Several answers to one prompt, computed together, and how sure the model was of each: several_answers.py [MODEL]"""

import math
import sys

import localllm

name = sys.argv[1] if len(sys.argv) > 1 else "smollm2:135m"
with localllm.load(name) as model:
    results = model.generate("Give me a name for a cat.", n=3, max_tokens=24, seed=1, logprobs=0)
for result in results:
    logprobs = [one.logprob for one in result.logprobs or ()]
    print(f"[{result.completion}] perplexity {math.exp(-sum(logprobs) / len(logprobs)):.2f}: {result.text.strip()}")
