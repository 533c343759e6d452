#!/usr/bin/env python3
"""Golden prompts, log-likelihoods and scores of evaluation tasks, by lm-evaluation-harness.

  pip install lm_eval==0.4.13 xxhash torch transformers accelerate
  python tools/oracle/evaluation.py STORIES260K BENCH

Reads the small data sets in tests/golden/evaluation/data, and BENCH (samples of published data sets,
not in the repository) where its data may not be copied: of those only hashes of the prompts are kept.
The model is stories260K (llama2.c's format; MIT), in fp32, with its tokenizer as a tokenizer.json,
which is written to tests/golden/evaluation/stories_tokenizer.json. Tasks are the task files of
lm_eval itself; only the place of their data is changed. Writes tests/golden/evaluation/*.jsonl, an
object a task.
"""

import csv
import glob
import json
import os
import struct
import sys

import datasets
import numpy as np
import torch
import xxhash
import yaml
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import lm_eval
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.huggingface import HFLM

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "../../tests/golden/evaluation")
MAX_NEW_TOKENS = 32
TASKS = os.path.join(os.path.dirname(lm_eval.__file__), "tasks")


def stories(folder):
    raw = open(os.path.join(folder, "stories260K.bin"), "rb").read()
    hidden, ffn, layers, heads, groups, vocabulary, positions = struct.unpack("7i", raw[:28])
    at = [28]

    def take(*shape):
        count = int(np.prod(shape))
        out = np.frombuffer(raw, "<f4", count, at[0]).reshape(shape).copy()
        at[0] += 4 * count
        return out

    d = hidden // heads

    def halves(w, n):
        return w.reshape(n, d // 2, 2, -1).transpose(0, 2, 1, 3).reshape(n * d, -1)

    names = [("input_layernorm", (hidden,), 0), ("self_attn.q_proj", (hidden, hidden), heads),
             ("self_attn.k_proj", (groups * d, hidden), groups), ("self_attn.v_proj", (groups * d, hidden), 0),
             ("self_attn.o_proj", (hidden, hidden), 0), ("post_attention_layernorm", (hidden,), 0),
             ("mlp.gate_proj", (ffn, hidden), 0), ("mlp.down_proj", (hidden, ffn), 0),
             ("mlp.up_proj", (ffn, hidden), 0)]
    state = {"model.embed_tokens.weight": take(vocabulary, hidden)}
    for name, shape, turned in names:
        for layer in range(layers):
            w = take(*shape)
            state[f"model.layers.{layer}.{name}.weight"] = halves(w, turned) if turned else w
    state["model.norm.weight"] = take(hidden)
    model = LlamaForCausalLM(LlamaConfig(
        hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=groups, vocab_size=vocabulary, max_position_embeddings=positions,
        rms_norm_eps=1e-5, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2))
    missing = model.load_state_dict({k: torch.tensor(v) for k, v in state.items()}, strict=False)
    assert not missing.unexpected_keys and missing.missing_keys in ([], ["lm_head.weight"]), missing
    model.tie_weights()
    return model.float().eval()


def tokenizer_of(folder):
    raw = open(os.path.join(folder, "tok512.bin"), "rb").read()
    words, at = [], 4
    while at < len(raw):
        _, length = struct.unpack("fi", raw[at:at + 8])
        words.append(raw[at + 8:at + 8 + length].decode())
        at += 8 + length
    words = ["<unk>", "<s>", "</s>"] + words[3:]
    vocabulary = {w.replace(" ", "▁"): i for i, w in enumerate(words)}
    merges = []
    for word, i in sorted(vocabulary.items(), key=lambda pair: pair[1]):
        if i < 259:
            continue
        for cut in range(1, len(word)):
            if word[:cut] in vocabulary and word[cut:] in vocabulary:
                merges.append([word[:cut], word[cut:]])
    special = [{"id": i, "content": words[i], "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for i in range(3)]
    spec = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
            "pre_tokenizer": None,
            "post_processor": {"type": "TemplateProcessing",
                               "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                          {"Sequence": {"id": "A", "type_id": 0}}],
                               "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                               "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True,
                      "ignore_merges": False, "vocab": vocabulary, "merges": merges}}
    path = os.path.join(GOLDEN, "stories_tokenizer.json")
    json.dump(spec, open(path, "w"), ensure_ascii=False)
    return PreTrainedTokenizerFast(tokenizer_file=path, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def jsonl(path):
    return [json.loads(line) for line in open(path)]


def rows_of_csv(path, columns=None):
    rows = list(csv.reader(open(path, newline="")))
    columns = columns or rows.pop(0)
    return [dict(zip(columns, row)) for row in rows]


def mmlu_rows(path):
    rows = rows_of_csv(path, ["question", "A", "B", "C", "D", "answer"])
    return [{"question": r["question"], "choices": [r[c] for c in "ABCD"], "answer": "ABCD".index(r["answer"])}
            for r in rows]


def agieval_rows(path):
    """hails/agieval: convert_zero_shot() of github.com/ruixiangcui/AGIEval, src/dataset_loader.py."""
    name = os.path.basename(path).removesuffix(".jsonl")
    chinese = name in ("gaokao-geography",)
    out = []
    for r in jsonl(path):
        options, last = " ".join(r["options"]), "ABCDEFG"[len(r["options"]) - 1]
        passage = r["passage"] or ""
        query = (f"{passage}问题：{r['question']} 选项：{options}\n答案：从A到{last}, 我们应选择" if chinese else
                 f"{passage}Q: {r['question']} Answer Choices: {options}\nA: Among A through {last}, the answer is")
        out.append({"query": query, "choices": r["options"], "gold": ["ABCDEFG".index(c) for c in r["label"]]})
    return out


def pages(path):
    out, page = [], []
    for line in open(path).read().split("\n"):
        bare = line.replace("= = =", "===").replace("= =", "==").strip()
        if bare.startswith("= ") and bare.endswith(" ="):
            if "\n".join(page).strip():
                out.append({"page": "\n".join(page)})
            page = []
        page.append(line)
    return out + [{"page": "\n".join(page)}]


def task_config(yaml_file):
    def load(path):
        loader = type("Loader", (yaml.SafeLoader,), {})

        def function(l, node):
            module, name = node.value.rsplit(".", 1)
            scope = {}
            source = os.path.join(os.path.dirname(path), module + ".py")
            code = open(source).read()
            exec(compile(code, source, "exec"), scope)
            return scope[name]

        loader.add_constructor("!function", function)
        config = yaml.load(open(path), loader)
        if "include" in config:
            base = load(os.path.join(os.path.dirname(path), config.pop("include")))
            config = {**base, **config}
        return config

    return load(os.path.join(TASKS, yaml_file))


def make_task(yaml_file, splits, shots):
    config = task_config(yaml_file)
    for key in ("test_split", "validation_split", "training_split", "fewshot_split"):
        if config.get(key) and config[key] not in splits:
            config.pop(key)
    config.pop("group", None)
    if "query" in next(iter(splits.values()))[0]:
        config.pop("process_docs", None)
        if yaml_file.startswith("hellaswag"):
            config["doc_to_target"] = "{{gold}}"
    if config["output_type"] == "generate_until":  # the small model reads 512 tokens
        config["generation_kwargs"] = {**config["generation_kwargs"], "max_gen_toks": MAX_NEW_TOKENS}

    class Task(ConfigurableTask):
        def download(self, *args, **kwargs):
            self.dataset = datasets.DatasetDict({s: datasets.Dataset.from_list(r) for s, r in splits.items()})

    task = Task(config=config)
    if shots is not None:
        task.set_config("num_fewshot", shots)
    task.set_fewshot_seed(1234)
    return task


def run(lm, name, subject, task, limit, keep_text):
    task.build_all_requests(limit=limit, rank=0, world_size=1)
    kind = task.OUTPUT_TYPE
    results = getattr(lm, {"multiple_choice": "loglikelihood"}.get(kind, kind))(task.instances)
    out = {"task": name, "subject": subject, "limit": limit, "samples": []}
    docs = {}
    for instance, result in zip(task.instances, results):
        instance.resps.append(result)
        docs.setdefault(instance.doc_id, []).append(instance)
    task.apply_filters()
    hashed = xxhash.xxh3_128()

    def add(text):
        data = text.encode()
        hashed.update(f"{len(data)}:".encode() + data)

    for doc_id, doc in sorted({i.doc_id: i.doc for i in task.instances}.items()):
        requests = sorted(docs[doc_id], key=lambda i: i.idx)
        sample = {"metrics": {}}
        for filter_name in requests[0].filtered_resps:
            values = task.process_results(doc, [i.filtered_resps[filter_name] for i in requests])
            for metric, value in values.items():
                sample["metrics"][f"{metric},{filter_name}"] = value[0] if isinstance(value, tuple) else value
        arguments = [i.args for i in requests]
        contexts = [a[0] for a in arguments]
        continuations = [] if kind in ("generate_until", "loglikelihood_rolling") else [a[1] for a in arguments]
        if len(set(contexts)) == 1:
            contexts = contexts[:1]
        for text in contexts + continuations:
            add(text)
        if keep_text:
            sample.update(contexts=contexts, continuations=continuations)
        responses = [i.resps[0] for i in requests]
        if kind == "generate_until":
            sample["text"] = responses[0]
        elif kind == "loglikelihood_rolling":
            sample["log_likelihoods"] = [float(r) for r in responses]
        else:
            sample["log_likelihoods"] = [float(r[0]) for r in responses]
            sample["greedy"] = [bool(r[1]) for r in responses]
        out["samples"].append(sample)
    out["prompt_hash"] = hashed.hexdigest()
    return out


def cases(root, limit):
    """Task, subject, task file, rows by split, shots."""
    def has(path):
        return os.path.exists(os.path.join(root, path))

    def at(path):
        return os.path.join(root, path)

    def of(path, reader=jsonl):
        return reader(at(path))

    if has("boolq/validation.jsonl"):
        rows = {s: [{**r, "label": int(r["answer"])} for r in of(f"boolq/{s}.jsonl")] for s in ("train", "validation")}
        yield "boolq", "", "super_glue/boolq/default.yaml", rows, 0
        yield "boolq", "", "super_glue/boolq/default.yaml", rows, 2
    elif has("boolq_dev.jsonl"):
        rows = {"validation": [{**r, "label": int(r["answer"])} for r in of("boolq_dev.jsonl")]}
        yield "boolq", "", "super_glue/boolq/default.yaml", rows, 0
    for path in sorted(glob.glob(at("mmlu/test/*_test.csv"))):
        s = os.path.basename(path).removesuffix("_test.csv")
        rows = {"test": mmlu_rows(path), "dev": mmlu_rows(at(f"mmlu/dev/{s}_dev.csv"))}
        yield "mmlu", s, f"mmlu/default/mmlu_{s}.yaml", rows, 5
    for path in sorted(glob.glob(at("ceval/val/*_val.csv"))):
        s = os.path.basename(path).removesuffix("_val.csv")
        rows = {"val": rows_of_csv(path), "dev": rows_of_csv(at(f"ceval/dev/{s}_dev.csv"))}
        yield "ceval", s, f"ceval/ceval-valid_{s}.yaml", rows, 5
    for path in sorted(glob.glob(at("cmmlu/test/*.csv"))):
        s = os.path.basename(path).removesuffix(".csv")
        rows = {"test": rows_of_csv(path), "dev": rows_of_csv(at(f"cmmlu/dev/{s}.csv"))}
        yield "cmmlu", s, f"cmmlu/cmmlu_{s}.yaml", rows, 5
    for path in sorted(glob.glob(at("agieval/*.jsonl"))):
        s = os.path.basename(path).removesuffix(".jsonl")
        yield "agieval", s, "agieval/sat-math.yaml", {"test": agieval_rows(path)}, 0
    for path in sorted(glob.glob(at("bbh/*.json"))):
        s = os.path.basename(path).removesuffix(".json")
        rows = json.load(open(path))["examples"]
        yield "bbh", s, f"bbh/cot_fewshot/{s}.yaml", {"test": rows}, 3
    for name, file in (("hellaswag", "hellaswag/hellaswag.yaml"), ("piqa", "piqa/piqa.yaml"),
                       ("winogrande", "winogrande/default.yaml")):
        if has(f"{name}/validation.jsonl"):
            yield name, "", file, {"validation": of(f"{name}/validation.jsonl")}, 0
    for name, file in (("arc_easy", "arc/arc_easy.yaml"), ("arc_challenge", "arc/arc_challenge.yaml"),
                       ("openbookqa", "openbookqa/openbookqa.yaml")):
        if has(f"{name}/test.jsonl"):
            yield name, "", file, {"test": of(f"{name}/test.jsonl")}, 0
    if has("hellaswag_val_subset.jsonl"):  # as process_docs() leaves them
        yield "hellaswag", "", "hellaswag/hellaswag.yaml", {"validation": of("hellaswag_val_subset.jsonl")}, 0
    lambada = "lambada/test.jsonl" if has("lambada/test.jsonl") else "lambada/lambada_test.jsonl"
    yield "lambada", "", "lambada/lambada_openai.yaml", {"test": of(lambada)}, 0
    if has("gsm8k/train.jsonl"):
        rows = {"train": of("gsm8k/train.jsonl"), "test": of("gsm8k/test.jsonl")}
        yield "gsm8k", "", "gsm8k/gsm8k.yaml", rows, 5
    else:
        yield "gsm8k", "", "gsm8k/gsm8k.yaml", {"test": of("gsm8k/test.jsonl")}, 0
    if has("wikitext/test.txt"):
        yield "wikitext", "", "wikitext/wikitext.yaml", {"test": of("wikitext/test.txt", pages)}, 0


def main():
    folder, bench = sys.argv[1:3]
    torch.set_num_threads(1)
    lm = HFLM(pretrained=stories(folder), tokenizer=tokenizer_of(folder), device="cpu", dtype="float32",
              batch_size=1)
    for root, file, limit, keep in ((os.path.join(GOLDEN, "data"), "small.jsonl", None, True),
                                    (bench, "published.jsonl", 3, False)):
        with open(os.path.join(GOLDEN, file), "w") as out:
            for name, subject, yaml_file, rows, shots in cases(root, limit):
                task = make_task(yaml_file, rows, shots)
                one = run(lm, name, subject, task, limit, keep)
                one["num_shots"] = shots
                out.write(json.dumps(one, ensure_ascii=False) + "\n")
                print(name, subject, len(one["samples"]), flush=True)


if __name__ == "__main__":
    main()
