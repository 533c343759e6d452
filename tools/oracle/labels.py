"""Classifiers of texts: Hugging Face folders of small random models, and what Transformers computes of them in float64.

  python tools/oracle/labels.py golden tests/golden/labels [NAME ...]     (torch 2.15, transformers 5.24, safetensors)
  python tools/oracle/labels.py adapters tests/golden/labels_lora [NAME ...]     (and peft 0.21)
  python tools/oracle/labels.py written build/lora_written      (folders that unit_adapters writes)
  python tools/oracle/labels.py compare FOLDER FILE.jsonl OUTPUT.jsonl [ADAPTER [LENGTH]]

`golden` writes a folder for each case of CASES: config.json and model.safetensors as Transformers saves them, and

  expected.safetensors   `tokens`, `segments` (0, or -1 for padding) and `labels` (the label of the text at the token from
                         which it is read, else -100), int32 [4, s]; `types` of encoders; `logits` [4, labels]; `loss`;
                         of regression labels are 1, and `targets` [4, s] the numbers; of several labels of a text
                         labels are the number of the text, and `sets` u8 [4, labels] 1 for each that it has
  gradients.safetensors  the gradient of the loss by every tensor, and `losses` and `norms` of ten steps of AdamW, as
                         tools/oracle/encoders.py has them

`adapters` writes adapters of PEFT for some of them (ADAPTERS), B drawn at random: adapter_config.json and
adapter_model.safetensors as PEFT saves them, `logits`, `loss`, `losses` and `norms` for the batch of the model in
expected.safetensors, and gradients.safetensors, the gradients of the loss under the names of adapter_model.safetensors.
`written` loads each folder labels-NAME that Piton has written into PEFT and holds its logits against them.

`compare` holds what `piton classify --load FOLDER FILE.jsonl` has printed against the logits of Transformers for the
tokens of its tokenizer, cut as its `truncation=True` cuts them to LENGTH.
"""
import datetime
import importlib.metadata as metadata
import json
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

import encoders
import lora

LENGTH, TEXTS = 13, 4
NAMES = {"id2label": {0: "sad", 1: "so so", 2: "glad"}, "label2id": {"sad": 0, "so so": 1, "glad": 2}}


NUMBER = {"num_labels": 1, "problem_type": "regression"}
SEVERAL = {**NAMES, "problem_type": "multi_label_classification"}


def bert_sizes(names=NAMES, **more):
    return {**encoders.sizes(), **names, **more}


def decoder_sizes(names=NAMES, **more):
    return {**dict(num_hidden_layers=2, hidden_size=24, num_attention_heads=4, num_key_value_heads=2,
                   intermediate_size=36, vocab_size=67, max_position_embeddings=40, pad_token_id=0), **names, **more}


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
    "gpt-neox": lambda: transformers.GPTNeoXForSequenceClassification(transformers.GPTNeoXConfig(
        **decoder_sizes(num_attention_heads=2, rotary_pct=0.5, bos_token_id=1, eos_token_id=1))),
    "falcon": lambda: transformers.FalconForSequenceClassification(transformers.FalconConfig(
        num_hidden_layers=2, hidden_size=24, num_attention_heads=4, multi_query=True, vocab_size=67, pad_token_id=0,
        bos_token_id=1, eos_token_id=1, hidden_dropout=0.0, attention_dropout=0.0, **NAMES)),
    "opt": lambda: transformers.OPTForSequenceClassification(transformers.OPTConfig(
        num_hidden_layers=2, hidden_size=24, num_attention_heads=4, ffn_dim=36, vocab_size=67,
        max_position_embeddings=40, word_embed_proj_dim=24, pad_token_id=0, bos_token_id=1, eos_token_id=1, **NAMES)),
    "bert-number": lambda: transformers.BertForSequenceClassification(transformers.BertConfig(**bert_sizes(NUMBER))),
    "qwen2-number": lambda: transformers.Qwen2ForSequenceClassification(
        transformers.Qwen2Config(**decoder_sizes(NUMBER))),
    "bert-several": lambda: transformers.BertForSequenceClassification(transformers.BertConfig(**bert_sizes(SEVERAL))),
    "roberta-several": lambda: transformers.RobertaForSequenceClassification(
        transformers.RobertaConfig(**bert_sizes(SEVERAL, type_vocab_size=1))),
    "qwen2-several": lambda: transformers.Qwen2ForSequenceClassification(
        transformers.Qwen2Config(**decoder_sizes(SEVERAL))),
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
    number = config.problem_type == "regression"
    several = config.problem_type == "multi_label_classification"
    wanted = torch.tensor([2, 0, 1, 2])
    if number:
        wanted = torch.tensor([0.5, -1.25, 3, 2], dtype=torch.float64)
    if several:
        wanted = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]], dtype=torch.float64)
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
    places = torch.arange(TEXTS), torch.zeros_like(lengths) if is_encoder else lengths - 1
    labels[places] = torch.ones_like(lengths) if number else torch.arange(TEXTS) if several else wanted
    expected = {"tokens": encoders.int32(tokens), "segments": encoders.int32(real.long() - 1),
                "labels": encoders.int32(labels), "logits": output.logits.detach().float().contiguous(),
                "loss": output.loss.detach().reshape(1)}
    if number:
        expected["targets"] = torch.zeros(tokens.shape)
        expected["targets"][places] = wanted.float()
    if several:
        expected["sets"] = wanted.to(torch.uint8)
    if is_encoder:
        expected["types"] = encoders.int32(types)
    save_file(expected, out / "expected.safetensors", metadata={"format": "pt", "origin": origin()})
    encoders.save_training(out, model, lambda: forward().loss)


# As PEFT finds "all-linear", which it stores in no fixed order.
ALL = ["query", "key", "value", "dense"]
ADAPTERS = {
    "bert": dict(target_modules=ALL, rank_pattern={"pooler.dense": 2}, use_rslora=True),
    "bert-dora": dict(target_modules=["query", "value", "output.dense", "pooler.dense"], use_dora=True),
    "bert-pooler": dict(target_modules=["query", "value", "intermediate.dense"],
                        modules_to_save=["pooler", "classifier", "LayerNorm"]),
    "megatron-bert": dict(target_modules=ALL),
    "roberta": dict(target_modules=ALL),
    "bert-number": dict(target_modules=ALL),
    "qwen2-number": dict(target_modules=["q_proj", "v_proj", "down_proj"]),
    "bert-several": dict(target_modules=ALL),
    "qwen2-several": dict(target_modules=["q_proj", "v_proj", "down_proj"]),
}
MODELS = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/labels"


def base_of(name):
    return name.removesuffix("-dora").removesuffix("-pooler")


def forward_of(name):
    """A function from a model to its output for the batch of the case."""
    batch = load_file(MODELS / base_of(name) / "expected.safetensors")
    places = batch["labels"] != -100
    labels = batch["labels"][places].long()
    if "targets" in batch:
        labels = batch["targets"][places].double()
    if "sets" in batch:
        labels = batch["sets"].double()
    more = {"token_type_ids": batch["types"].long()} if name.startswith(("bert", "megatron")) else {}
    return lambda model: model(input_ids=batch["tokens"].long(), attention_mask=batch["segments"].long() + 1,
                               labels=labels, **more)


def adapted(name):
    import peft

    model = transformers.AutoModelForSequenceClassification.from_pretrained(MODELS / base_of(name), dtype=torch.float32)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    torch.manual_seed(3)
    config = peft.LoraConfig(r=4, lora_alpha=6, task_type="SEQ_CLS", **ADAPTERS[name])
    return lora.drawn(peft.get_peft_model(model, config))


def adapters(folder, names):
    for name in names or ADAPTERS:
        out = pathlib.Path(folder) / name
        shutil.rmtree(out, ignore_errors=True)
        model = adapted(name)
        model.save_pretrained(out)
        (out / "README.md").unlink(missing_ok=True)
        config = json.loads((out / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = f"tests/golden/labels/{base_of(name)}"
        for key in ("target_modules", "modules_to_save"):
            config[key] = sorted(config[key])
        (out / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        model, forward = model.double(), forward_of(name)
        output = forward(model)
        output.loss.backward()
        gradients = {lora.saved_name(key): parameter.grad.float().contiguous()
                     for key, parameter in model.named_parameters() if parameter.requires_grad}
        assert set(gradients) == set(load_file(out / "adapter_model.safetensors"))
        more = {"format": "pt", "origin": origin() + f", peft {metadata.version('peft')}"}
        save_file(gradients, out / "gradients.safetensors", metadata=more)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW([{"params": [p for p in trained if p.ndim > 1], "weight_decay": 0.1},
                                       {"params": [p for p in trained if p.ndim == 1], "weight_decay": 0.0}],
                                      lr=3e-3, betas=(0.9, 0.95), eps=1e-8)
        losses, norms = [], []
        for _ in range(10):
            optimizer.zero_grad()
            loss = forward(model).loss
            loss.backward()
            norms.append(float(torch.nn.utils.clip_grad_norm_(trained, 1.0)))
            losses.append(float(loss.detach()))
            optimizer.step()
        save_file({"logits": output.logits.detach().float().contiguous(), "loss": output.loss.detach().reshape(1),
                   "losses": torch.tensor(losses, dtype=torch.float64),
                   "norms": torch.tensor(norms, dtype=torch.float64)}, out / "expected.safetensors", metadata=more)


def written(folder):
    import peft

    good = True
    for one in sorted(pathlib.Path(folder).glob("labels-*")):
        name = one.name.removeprefix("labels-")
        model = transformers.AutoModelForSequenceClassification.from_pretrained(MODELS / base_of(name),
                                                                                dtype=torch.float32)
        model = peft.PeftModel.from_pretrained(model, one).double().eval()
        wanted = load_file(pathlib.Path(__file__).resolve().parents[2] / "tests/golden/labels_lora" / name
                           / "expected.safetensors")["logits"]
        with torch.no_grad():
            worst = float((forward_of(name)(model).logits - wanted).abs().max())
        good &= worst < 2e-5
        print(f"{'ok  ' if worst < 2e-5 else 'BAD '} {one.name:24} logits {worst:.2e}", flush=True)
    return good


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
        more["num_labels"] = len(ours[0].get("probabilities", [None]))
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
            logits = model(**encoded).logits[0].double()
        if "number" in one:
            worst = max(worst, abs(one["number"] - float(logits[0])))
            continue
        several = "labels" in one
        theirs = torch.sigmoid(logits) if several else torch.softmax(logits, 0)
        mine = list(one["probabilities"].values())
        worst = max(worst, float((torch.tensor(mine).double() - theirs).abs().max()))
        if several:
            assert one["labels"] == [list(one["probabilities"])[i] for i, p in enumerate(theirs) if p >= 0.5], one
            continue
        assert one["label"] == (names[int(theirs.argmax())] if not adapter else one["label"]), (one, theirs)
    print(f"{folder} {adapter or ''}: {len(ours)} texts, largest distance of a probability or number {worst:.2e}")
    return worst < 2e-5


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    if command == "golden":
        for case, make in CASES.items():
            if len(rest) == 1 or case in rest[1:]:
                golden(pathlib.Path(rest[0]) / case, make)
    elif command == "adapters":
        adapters(rest[0], rest[1:])
    elif not (written(*rest) if command == "written" else compare(*rest)):
        sys.exit(1)
