"""Beam search of Transformers on the small models of tests/golden/huggingface, one search a line.

    python -m venv VENV && VENV/bin/pip install torch transformers safetensors
    VENV/bin/python tools/oracle/beams.py > tests/golden/beams.jsonl

In float64, but for the scores, which Transformers adds up in float32. `end`: the id that ends a text, or several,
chosen among those that the beams write, so that some of them end early.
"""
import collections
import datetime
import json
import os

import torch
import transformers
from transformers import AutoModelForCausalLM, GenerationConfig

FOLDER = os.path.join(os.path.dirname(__file__), "..", "..", "tests", "golden", "huggingface")


def search(model, prompt, beams, penalty, tokens, end, early):
    config = GenerationConfig(num_beams=beams, num_return_sequences=beams, length_penalty=penalty, do_sample=False,
                              max_new_tokens=tokens, eos_token_id=end, pad_token_id=0, early_stopping=early,
                              output_scores=True, return_dict_in_generate=True)
    out = model.generate(torch.tensor([prompt]), generation_config=config)
    found = []
    for sequence, score in zip(out.sequences.tolist(), out.sequences_scores.tolist()):
        written = sequence[len(prompt):]
        ends = end if isinstance(end, list) else [end]
        places = [i for i, id in enumerate(written) if id in ends]
        if places:
            written = written[:places[0] + 1]
        found.append({"ids": written, "score": score})
    return found


print(json.dumps({"made_by": "tools/oracle/beams.py", "transformers": transformers.__version__,
                  "torch": torch.__version__, "date": str(datetime.date.today())}))
for name in ["gpt2", "llama3", "gemma3"]:
    model = AutoModelForCausalLM.from_pretrained(os.path.join(FOLDER, name), dtype=torch.float64).eval()
    vocabulary = model.config.vocab_size
    model.generation_config = GenerationConfig()  # the folder's own would end texts at its eos_token_id
    model.config.eos_token_id = None
    for seed, (beams, penalty) in enumerate([(2, 1.0), (3, 1.0), (4, 0.0), (5, 2.0), (4, -0.5), (8, 0.7)]):
        prompt = [(7 + 13 * i * (seed + 1)) % vocabulary for i in range(1, 4 + seed)]
        free = search(model, prompt, beams, penalty, 12, None, False)
        written = collections.Counter(i for one in free for i in one["ids"][2:])
        often = written.most_common(1)[0][0]
        # So many that most of the likeliest tokens end a text.
        several = sorted({often, *range(seed, vocabulary, 4), *range(seed + 1, vocabulary, 6)})
        for end, early in [(None, False), (often, False), (often, True), (often, "never"), (several, False), (several, True)]:
            found = search(model, prompt, beams, penalty, 12, end, early)
            print(json.dumps({"model": name, "prompt": prompt, "beams": beams, "length_penalty": penalty, "tokens": 12,
                              "end": end, "early_stopping": str(early).lower(), "found": found}))
