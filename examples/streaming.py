"""Show an answer while it is made, in a conversation of two turns.

usage: python streaming.py [MODEL]
"""

import sys

import localllm

name = sys.argv[1] if len(sys.argv) > 1 else "smollm2:135m"
questions = ["Name three colours.", "Which of them is the warmest?"]

with localllm.load(name) as model:
    messages = [{"role": "system", "content": "You answer in one sentence."}]
    for question in questions:
        print(f"> {question}")
        messages.append({"role": "user", "content": question})
        with model.stream(messages, max_tokens=48, temperature=0) as events:
            for event in events:
                print(event.text, end="", flush=True)
        result = events.result
        print(f"\n[{result.usage.completion_tokens} tokens, {result.timings.completion_per_second:.1f} a second]")
        messages.append({"role": "assistant", "content": result.text})
