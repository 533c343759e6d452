"""Whether a model answers in the format that fine-tuning taught it: stories260K on Alpaca's records.

  python tools/oracle/taught_format.py build/piton ../shared/data [--steps 150] [--work FOLDER]

The model knows nothing but children's stories. It is fine-tuned on nine of ten records of instruct/alpaca_en_demo.json,
whose answers are written as "Answer: FIRST SENTENCE" and, on the next line, "Done.". Then it answers the questions of the
others, greedily. Prints the share of answers that have exactly this format and end by themselves, before and after. Fails
if the share is above 0.05 before, or below 0.8 after: 0 and 0.89 in half a minute, torch 2.15, transformers 5.23.
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import huggingface

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/evaluation"
FORMAT = re.compile(r"\s*Answer: [^\n]+\nDone\.\s*")


def piton(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def records(data):
    """Those with a short question and a first sentence that is short."""
    for one in json.loads((data / "instruct/alpaca_en_demo.json").read_text()):
        question = " ".join((one["instruction"] + " " + one["input"]).split())
        sentence = re.split(r"(?<=[.!?])\s", one["output"].strip())[0].split("\n")[0]
        if question.isascii() and sentence.isascii() and len(question) <= 120 and 4 <= len(sentence) <= 80:
            yield question, f"Answer: {sentence}\nDone."


def rate(program, model, questions, work):
    prompts = work / "prompts.jsonl"
    prompts.write_text("".join(json.dumps(f"Human: {one}\nAssistant:") + "\n" for one in questions))
    lines = piton(program, "generate", "--load", model, "--prompts", prompts, "--prompts-at-once", 16, "--greedy",
                  "--max-new-tokens", 128).splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    assert len(texts) == len(questions), (len(texts), len(questions))
    for question, text in list(zip(questions, texts))[:3]:
        print(f"  {question}\n    {text!r}")
    return sum(FORMAT.fullmatch(text) is not None for text in texts) / len(texts)


def show(options, work):
    base = work / "base"
    huggingface.stories_folder(options.data / "weights/stories260K", base)
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"bos_token_id": 1, "eos_token_id": 2}))
    shutil.copy(GOLDEN / "stories_tokenizer.json", base / "tokenizer.json")
    (base / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}))
    pairs = list(records(options.data))
    held_out = [question for i, (question, _) in enumerate(pairs) if i % 10 == 0][:options.questions]
    (work / "train.json").write_text(json.dumps([{"instruction": question, "input": "", "output": answer}
                                                 for i, (question, answer) in enumerate(pairs) if i % 10]))
    print(f"{len(pairs)} records, {len(held_out)} of them held out")
    before = rate(options.piton, base, held_out, work)
    piton(options.piton, "preprocess", "--input", work / "train.json", "--handler-name", "AlpacaStyleInstructionHandler",
          "--prompt-type", "default", "--tokenizer-name-or-path", base, "--output-prefix", work / "train")
    piton(options.piton, "finetune", "--load", base, "--data-path", work / "train", "--split", "100,0,0", "--seq-length", 512,
          "--micro-batch-size", 4, "--global-batch-size", 4, "--train-iters", options.steps, "--lr",
          2e-3, "--lr-decay-style", "cosine", "--lr-warmup-iters", 10, "--save", work / "run")
    after = rate(options.piton, work / "run", held_out, work)
    print(f"answers in the format: {before:.3f} before, {after:.3f} after {options.steps} steps")
    return before <= 0.05 and after >= 0.8


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("piton", type=pathlib.Path)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--work", type=pathlib.Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.work or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        sys.exit(0 if show(given, folder) else 1)
