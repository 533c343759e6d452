"""Tokens that would repeat an n-gram, and biased logits, by Transformers.

    python -m venv VENV && VENV/bin/pip install torch transformers
    VENV/bin/python tools/oracle/ngrams.py > tests/golden/sampling/ngrams.jsonl

A line a text: its ids, n, the ids that NoRepeatNGramLogitsProcessor leaves out; biases, and the logits 0 to 5 after
SequenceBiasLogitsProcessor.
"""
import json
import random

import torch
from transformers import NoRepeatNGramLogitsProcessor, SequenceBiasLogitsProcessor

VOCABULARY = 6
draw = random.Random(1)
for _ in range(60):
    text = [draw.randrange(3 if draw.random() < 0.7 else VOCABULARY) for _ in range(draw.randint(1, 16))]
    n = draw.randint(1, 4)
    ids = torch.tensor([text])
    scores = NoRepeatNGramLogitsProcessor(n)(ids, torch.zeros(1, VOCABULARY))
    bias = {draw.randrange(VOCABULARY): round(draw.uniform(-8, 8), 2) for _ in range(draw.randint(1, 3))}
    biased = SequenceBiasLogitsProcessor({(i,): b for i, b in bias.items()})(ids, torch.arange(VOCABULARY).float()[None])
    print(json.dumps({"text": text, "n": n, "forbidden": torch.isinf(scores[0]).nonzero().flatten().tolist(),
                      "bias": [[i, b] for i, b in bias.items()], "biased": biased[0].tolist()}))
