"""Share of right answers, for docs/reinforcement.md.

  piton generate --load RUN --prompts held_out.jsonl --greedy --max-new-tokens 8 | python3 examples/rewards/greedy.py held_out.jsonl
"""
import json
import sys

wanted = [json.loads(line)["answer"] for line in open(sys.argv[1])]
found = [json.loads(line)["text"].strip() for line in sys.stdin]
right = sum(a == b for a, b in zip(found, wanted, strict=True))
print(f"{right} of {len(wanted)} are right")
