#!/usr/bin/env python3
"""Compares /v1/rerank and /v1/classify of `piton serve` with Transformers.

    serve_labels.py PITON

Writes two small BERT classifiers with random weights, one with one label (a cross-encoder) and one
with three, serves them, and asks for texts and pairs of all lengths, of which some are cut. Prints
the largest distance of a score and of a probability; exits with 1 if one is above 1e-5.
"""

import json
import pathlib
import re
import string
import subprocess
import sys
import tempfile
import urllib.request

import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

LONGEST = 64
QUERY = "what is a cat?"
TEXTS = ["the cat sat", "dogs", "a long document " * 12, "q", "hello world."] * 30


def write_model(folder, labels):
    letters = list(string.ascii_lowercase)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + one for one in letters), "?", "."]
    (folder / "vocab.txt").write_text("\n".join(words))
    tokenizer = BertTokenizerFast(str(folder / "vocab.txt"))
    torch.manual_seed(labels)
    model = BertForSequenceClassification(BertConfig(
        vocab_size=len(words), hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        max_position_embeddings=LONGEST, num_labels=labels)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # scores that differ
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def served(piton, folder, path, body):
    server = subprocess.Popen([piton, "serve", "--load", folder, "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        url = re.search(r"http://\S+", server.stdout.readline()).group().rstrip("/")
        request = urllib.request.Request(url + path, json.dumps(body).encode())
        return json.load(urllib.request.urlopen(request))
    finally:
        server.kill()


def logits(model, tokenizer, *texts):
    with torch.no_grad():
        return model(**tokenizer(*texts, return_tensors="pt", truncation=True, max_length=LONGEST)).logits[0]


def main():
    piton = sys.argv[1]
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model, tokenizer = write_model(folder, 1)
        results = served(piton, folder, "/v1/rerank", {"query": QUERY, "documents": TEXTS})["results"]
        assert sorted(one["index"] for one in results) == list(range(len(TEXTS)))
        for one in results:
            wanted = torch.sigmoid(logits(model, tokenizer, QUERY, TEXTS[one["index"]])[0]).item()
            worst = max(worst, abs(wanted - one["relevance_score"]))
        print(f"scores of {len(results)} documents: at most {worst:.1e} from those of Transformers")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model, tokenizer = write_model(folder, 3)
        for one in served(piton, folder, "/classify", {"input": TEXTS})["data"]:
            wanted = torch.softmax(logits(model, tokenizer, TEXTS[one["index"]]), -1).tolist()
            assert one["label"] == f"LABEL_{wanted.index(max(wanted))}" and one["num_classes"] == 3
            worst = max(worst, *(abs(a - b) for a, b in zip(wanted, one["probs"], strict=True)))
        print(f"probabilities of {len(TEXTS)} texts: all at most {worst:.1e} from those of Transformers")
    sys.exit(worst > 1e-5)


if __name__ == "__main__":
    main()
