"""Classifiers of texts: Hugging Face folders of small random models, and what Transformers computes of them in float64.

  python tools/oracle/labels.py golden tests/golden/labels [NAME ...]     (torch 2.15, transformers 5.24, safetensors)
  python tools/oracle/labels.py compare FOLDER FILE.jsonl OUTPUT.jsonl [ADAPTER [LENGTH]]

`golden` writes a folder for each case of CASES: config.json and model.safetensors as Transformers saves them, and

  expected.safetensors   `tokens`, `segments` (0, or -1 for padding) and `labels` (the label of the text at the token from
                         which it is read, else -100), int32 [4, s]; `types` of encoders; `logits` [4, labels]; `loss`
  gradients.safetensors  the gradient of the loss by every tensor, and `losses` and `norms` of ten steps of AdamW, as
                         tools/oracle/encoders.py has them

`compare` holds what `piton classify --load FOLDER FILE.jsonl` has printed against the logits of Transformers for the
tokens of its tokenizer, cut as its `truncation=True` cuts them to LENGTH.
"""
import datetime
import importlib.metadata as metadata
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

import encoders

LENGTH, TEXTS = 13, 4
NAMES = {"id2label": {0: "sad", 1: "so so", 2: "glad"}, "label2id": {"sad": 0, "so so": 1, "glad": 2}}


def bert_sizes(**more):
    return {**encoders.sizes(), **NAMES, **more}


def decoder_sizes(**more):
    return {**dict(num_hidden_layers=2, hidden_size=24, num_attention_heads=4, num_key_value_heads=2,
                   intermediate_size=36, vocab_size=67, max_position_embeddings=40, pad_token_id=0), **NAMES, **more}


CASES = {
    "bert": lambda: transformers.BertForSequenceClassification(transformers.BertConfig(**bert_sizes())),
    "megatron-bert": lambda: transformers.MegatronBertForSequenceClassification(
        transformers.MegatronBertConfig(**bert_sizes())),
    "roberta": lambda: transformers.RobertaForSequenceClassification(
        transformers.RobertaConfig(**bert_sizes(type_vocab_size=1))),
    "xlm-roberta": lambda: transformers.XLMRobertaForSequenceClassification(
        transformers.XLMRobertaConfig(**bert_sizes(type_vocab_size=1))),
    "qwen2": lambda: transformers.Qwen2ForSequenceClassification(transformers.Qwen2Config(**decoder_sizes())),
    "gpt2": lambda: transformers.GPT2ForSequenceClassification(transformers.GPT2Config(
        n_layer=2, n_embd=24, n_head=4, vocab_size=67, n_positions=40, pad_token_id=0, bos_token_id=1, eos_token_id=1,
        **NAMES)),
}


def origin():
    return f"tools/oracle/labels.py, {datetime.date.today()}, torch {metadata.version('torch')}, " \
           f"transformers {metadata.version('transformers')}"


def golden(out, make):
    model = encoders.saved(out, make)
    config = model.config
    is_encoder = hasattr(config, "type_vocab_size")
    pad = config.pad_token_id
    tokens = torch.randint(2, config.vocab_size, (TEXTS, LENGTH))
    lengths = torch.tensor([LENGTH, LENGTH - 4, LENGTH - 1, 3])
    real = torch.arange(LENGTH)[None] < lengths[:, None]
    tokens[~real] = pad
    types = (torch.arange(LENGTH)[None] >= torch.tensor([[6], [5], [13], [1]])).long()
    types[~real] = 0
    wanted = torch.tensor([2, 0, 1, 2])
    more = {}
    if is_encoder and config.type_vocab_size > 1:
        more["token_type_ids"] = types
    else:
        types = torch.zeros_like(types)

    def forward():
        return model(input_ids=tokens, attention_mask=real.long(), labels=wanted, **more)

    output = forward()
    output.loss.backward()
    labels = torch.full_like(tokens, -100)
    labels[torch.arange(TEXTS), torch.zeros_like(lengths) if is_encoder else lengths - 1] = wanted
    expected = {"tokens": encoders.int32(tokens), "segments": encoders.int32(real.long() - 1),
                "labels": encoders.int32(labels), "logits": output.logits.detach().float().contiguous(),
                "loss": output.loss.detach().reshape(1)}
    if is_encoder:
        expected["types"] = encoders.int32(types)
    save_file(expected, out / "expected.safetensors", metadata={"format": "pt", "origin": origin()})
    encoders.save_training(out, model, lambda: forward().loss)


PAIRS = [("text", "text_pair"), ("sentence1", "sentence2"), ("question1", "question2"), ("premise", "hypothesis"),
         ("question", "sentence"), ("question", "passage"), ("sentence", None)]


def texts_of(record):
    for first, second in PAIRS:
        if first not in record or not (second is None or first == "text" or second in record):
            continue
        return [record[first]] + ([record[second]] if second in record else [])
    raise SystemExit(f"no text in {record}")


def compare(folder, file, output, adapter=None, length=None):
    more = {}
    ours = [json.loads(line) for line in pathlib.Path(output).read_text().splitlines()]
    if adapter:
        more["num_labels"] = len(ours[0]["probabilities"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32, **more)
    if adapter:
        import peft
        model = peft.PeftModel.from_pretrained(model, adapter)
    model.eval()
    most = int(length) if length else min(model.config.max_position_embeddings, 10**6)
    names = model.config.id2label
    worst = 0.0
    records = [json.loads(line) for line in pathlib.Path(file).read_text().splitlines()]
    assert len(records) == len(ours), (len(records), len(ours))
    for record, one in zip(records, ours):
        encoded = tokenizer(*texts_of(record), truncation=True, max_length=most, return_tensors="pt")
        with torch.no_grad():
            theirs = torch.softmax(model(**encoded).logits[0].double(), 0)
        mine = list(one["probabilities"].values())
        worst = max(worst, float((torch.tensor(mine).double() - theirs).abs().max()))
        assert one["label"] == (names[int(theirs.argmax())] if not adapter else one["label"]), (one, theirs)
    print(f"{folder} {adapter or ''}: {len(ours)} texts, largest distance of a probability {worst:.2e}")
    return worst < 2e-5


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    if command == "golden":
        for case, make in CASES.items():
            if len(rest) == 1 or case in rest[1:]:
                golden(pathlib.Path(rest[0]) / case, make)
    elif not compare(*rest):
        sys.exit(1)
