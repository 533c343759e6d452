"""Hidden states of Transformers on the small models of tests/golden/huggingface: their mean over a text, and the last.

    python -m venv VENV && VENV/bin/pip install torch transformers safetensors
    VENV/bin/python tools/oracle/embeddings.py > tests/golden/embeddings.jsonl

In float64. The hidden states are those after the final norm.
"""
import datetime
import json
import os

import torch
import transformers
from transformers import AutoModelForCausalLM

FOLDER = os.path.join(os.path.dirname(__file__), "..", "..", "tests", "golden", "huggingface")

print(json.dumps({"made_by": "tools/oracle/embeddings.py", "transformers": transformers.__version__,
                  "torch": torch.__version__, "date": str(datetime.date.today())}))
for name in ["gpt2", "llama3", "gemma3"]:
    model = AutoModelForCausalLM.from_pretrained(os.path.join(FOLDER, name), dtype=torch.float64).eval()
    for length in [1, 6, 13]:
        ids = [(7 + 13 * i * length) % model.config.vocab_size for i in range(length)]
        with torch.no_grad():
            hidden = model(torch.tensor([ids]), output_hidden_states=True).hidden_states[-1][0]
        rounded = [[round(value, 6) for value in vector.tolist()] for vector in (hidden.mean(dim=0), hidden[-1])]
        print(json.dumps({"model": name, "ids": ids, "mean": rounded[0], "last": rounded[1]}))
