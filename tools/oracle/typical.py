"""Tokens that typical sampling leaves, by Transformers, alone and after its top-k, top-p and min-p.

    python -m venv VENV && VENV/bin/pip install torch transformers
    VENV/bin/python tools/oracle/typical.py > tests/golden/sampling/typical.jsonl
"""
import json
import random

import torch
from transformers import (MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper,
                          TypicalLogitsWarper)

draw = random.Random(3)
for _ in range(60):
    logits = [round(draw.uniform(-2, 2), 2) for _ in range(9)]
    mass, temperature = round(draw.uniform(0.1, 0.95), 2), round(draw.uniform(0.7, 2), 2)
    top_k = draw.choice([0, 0, 4, 6])
    top_p = draw.choice([1, 1, 0.7])
    min_p = draw.choice([0, 0, 0.1])
    if top_k == 0 and top_p == 1:
        logits[1] = logits[4] = logits[7]  # as near as each other
    scores = TemperatureLogitsWarper(temperature)(None, torch.tensor([logits], dtype=torch.float64))
    if top_k:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1:
        scores = TopPLogitsWarper(top_p)(None, scores)
    if min_p:
        scores = MinPLogitsWarper(min_p)(None, scores)
    scores = TypicalLogitsWarper(mass)(None, scores)
    print(json.dumps({"logits": logits, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p,
                      "typical_p": mass, "left": torch.isfinite(scores[0]).nonzero().flatten().tolist()}))
