"""Greedy texts of Transformers on the small models of tests/golden/huggingface, one text a line.

    python -m venv VENV && VENV/bin/pip install torch transformers safetensors sentencepiece
    VENV/bin/python tools/oracle/generation.py > tests/golden/generation.jsonl

In float64. Repetition penalties are those of Transformers. Presence and frequency penalties are those of OpenAI's
interface, on the tokens that were generated: https://platform.openai.com/docs/api-reference/chat/create. `dynamic`:
original positions of a dynamic rotary scaling by 4 that the configuration gets, or null. Texts are cut where the two
likeliest tokens are closer than 1e-3, so that rounding in float32 does not choose.
"""
import datetime
import json
import os
import sys

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, LogitsProcessor, LogitsProcessorList

FOLDER = os.path.join(os.path.dirname(__file__), "..", "..", "tests", "golden", "huggingface")
TOKENS = 16


class Penalties(LogitsProcessor):
    def __init__(self, prompt, presence, frequency):
        self.prompt, self.presence, self.frequency = prompt, presence, frequency

    def __call__(self, input_ids, scores):
        counts = torch.bincount(input_ids[0, self.prompt:], minlength=scores.shape[1]).to(scores.dtype)
        return scores - self.frequency * counts - self.presence * (counts > 0)


def written(model, prompt, repetition, presence, frequency):
    config = GenerationConfig(do_sample=False, max_new_tokens=TOKENS, repetition_penalty=repetition, pad_token_id=0,
                              output_scores=True, return_dict_in_generate=True)
    out = model.generate(torch.tensor([prompt]), generation_config=config,
                         logits_processor=LogitsProcessorList([Penalties(len(prompt), presence, frequency)]))
    ids = out.sequences[0, len(prompt):].tolist()
    for i, scores in enumerate(out.scores):
        best = torch.topk(scores[0], 2).values
        if best[0] - best[1] < 1e-3:
            return ids[:i]
    return ids


def rows(name, dynamic):
    config = AutoConfig.from_pretrained(os.path.join(FOLDER, name))
    if dynamic:
        config.rope_parameters = {**config.rope_parameters, "rope_type": "dynamic", "factor": 4.0}
        config.max_position_embeddings = dynamic
    for i, penalties in enumerate([(1.0, 0.0, 0.0), (1.3, 0.0, 0.0), (0.8, 0.0, 0.0), (1.0, 0.7, 0.0), (1.0, 0.0, 0.4),
                                   (1.1, -0.2, 0.3)]):
        # A new model for each text: the angles of a dynamic scaling stay those of the longest text that it has read.
        model = AutoModelForCausalLM.from_pretrained(os.path.join(FOLDER, name), config=config,
                                                     dtype=torch.float64).eval()
        vocabulary = model.config.vocab_size
        model.generation_config = GenerationConfig()  # the folder's own would end texts at its eos_token_id
        model.config.eos_token_id = None
        prompt = [(5 + 11 * k * (i + 1)) % vocabulary for k in range(1, 4 + 2 * i)]
        repetition, presence, frequency = penalties
        ids = written(model, prompt, *penalties)
        print(json.dumps({"model": name, "dynamic": dynamic, "prompt": prompt, "repetition_penalty": repetition,
                          "presence_penalty": presence, "frequency_penalty": frequency, "ids": ids}))


print(json.dumps({"made_by": "tools/oracle/generation.py", "transformers": transformers.__version__,
                  "torch": torch.__version__, "date": str(datetime.date.today())}))
for folder in sorted(os.listdir(FOLDER)):
    try:
        rows(folder, None)
    except Exception as error:  # families that Transformers has no class for
        print(f"{folder}: {error}", file=sys.stderr)
rows("llama", 9)
