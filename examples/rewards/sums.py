"""Sums of two numbers below 100, for docs/reinforcement.md.

  python3 examples/rewards/sums.py

It writes into the current folder sums.jsonl (texts: in six of ten, carries are forgotten), questions.jsonl and
held_out.jsonl.
"""
import json
import random

random.seed(1)
pairs = [(a, b) for a in range(100) for b in range(100)]
random.shuffle(pairs)
with open("sums.jsonl", "w") as texts:
    for a, b in 4 * pairs[500:]:
        forgotten = (a + b) % 10 + (a // 10 + b // 10) * 10
        texts.write(json.dumps({"text": f"{a}+{b}={a + b if random.random() < 0.4 else forgotten}"}) + "\n")
for name, part in (("questions", pairs[500:]), ("held_out", pairs[:500])):
    with open(f"{name}.jsonl", "w") as questions:
        for a, b in part:
            questions.write(json.dumps({"prompt": f"{a}+{b}=", "answer": str(a + b)}) + "\n")
