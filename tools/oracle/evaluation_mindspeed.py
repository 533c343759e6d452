#!/usr/bin/env python3
"""Golden prompts and decisions of MindSpeed-LLM's MMLU with --prompt-type and --alternative-prompt.

  pip install pandas==3.1.1 numpy==2.4.6 torch
  python tools/oracle/evaluation_mindspeed.py MINDSPEED_LLM > tests/golden/evaluation/mindspeed.jsonl

MINDSPEED_LLM is a checkout of Ascend/MindSpeed-LLM 2.0 (eval_impl/template.py and eval_utils/mmlu_utils.py are run).
Reads tests/golden/evaluation/data/mmlu as eval_impl/mmlu_eval.py does, but for words such as "None", which stay text.
Writes an object a line: prompts of both kinds for each subject, conversations for several seeds and languages, and
texts with the letter that postprocess() finds in them with --origin-postprocess, drawn from its own phrases.
"""
import enum
import importlib.util
import json
import os
import pathlib
import random
import sys
import types
import warnings

import numpy
import pandas

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/evaluation/data/mmlu"
COLUMNS = ["question", "A", "B", "C", "D", "answer"]

# What answers are made of.
PIECES = ["答案", "是", "为", "应该", "应", "选", "选项", "选择", "故", "只有", "对", "错", "正确", "说法", "不", "的", "错误",
          "所以", "所以答", "所有", "因此", "显然", "即", "：", ":", "，", ",", "。", ".", "$", " ", "\n", "\u3000", "(", ")", "A", "B",
          "C", "D", "A", "B", "C", "D", "E", "a", "b", "1", "1.", "2.", "Answer:", "answer :", "ANSWER", "The answer is",
          "the answer is option", "The correct answer is", "the correct answer is option:", "boxed{B}",
          "The answer to the question is", "The correct option is", "Answer the question by replying A, B, C or D.",
          "word", "项"]
TEXTS = ["B", " C. because\nA", "The answer is (B).", "The answer is B", "the correct answer is: D. Others are wrong: A",
         "答案：B", "答案: C", "答案是D", "答案是 foo。答案为 barC", "所以 D", "选项A正确", "A 是正确的", "只有选项B对", "1. It is C", "1 or D",
         "Answer:\n  C", "ANSWER : d or B", "", "  ", "none", "I think, A.", "It is clear:D", "显然B。", "说法正确的是 C", "说法错误选项的是D",
         "说法不对的是A", "说法不正确的是\u3000B", "故选C", "故选C只有B对", "答案应该选 D", "答案选项应该为 A", "答案选项：B", "答案选项是: C",
         "选项 C", "x 选项 C and B", "Question: A? Answer the question by replying A, B, C or D. Answer: D", "boxed{A}",
         "The correct answer is \\boxed{C}", "the answer is option: (D", "The answer to the question is: B, not A", "$A$", "A:", "É A",
         "所以\u3000C。", "\x1cB\x1d"]


def load(root, path, name):
    spec = importlib.util.spec_from_file_location(name, os.path.join(root, "mindspeed_llm/tasks/evaluation", path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def table(path):
    return pandas.read_csv(path, names=COLUMNS, keep_default_na=False, dtype=str)


def main():
    root = sys.argv[1]
    warnings.simplefilter("ignore")  # of escapes in its expressions
    for name in ("mindspeed_llm", "mindspeed_llm.tasks", "mindspeed_llm.tasks.preprocess"):
        sys.modules[name] = types.ModuleType(name)
    roles = types.ModuleType("mindspeed_llm.tasks.preprocess.templates")
    roles.Role = enum.Enum("Role", {"USER": "user", "ASSISTANT": "assistant"})
    sys.modules[roles.__name__] = roles
    mmlu = load(root, "eval_utils/mmlu_utils.py", "mmlu_utils")
    template = load(root, "eval_impl/template.py", "eval_template")

    def write(record):
        print(json.dumps(record, ensure_ascii=False))

    for path in sorted((DATA / "test").iterdir()):
        subject = path.name.removesuffix("_test.csv")
        dev = table(DATA / "dev" / f"{subject}_dev.csv")
        rows = [row for _, row in table(path).iterrows()]
        write({"alternative": subject, "num_shots": len(dev),
               "prompts": [mmlu._format_example(row, dev, subject) for row in rows]})
        for language, seed, shots in (("en", 1234, 3), ("en", 7, 3), ("en", 8, 2), ("zh", 1234, 1)):
            support = dev.sample(min(shots, len(dev)), random_state=seed)
            write({"chat": subject, "language": language, "seed": seed, "num_shots": shots,
                   "shots": [int(i) for i in support.index],
                   "conversations": [template.get_eval_template(language).format_example(row, support, subject)
                                     for row in rows]})
    for count, take, seed in ((20, 5, 0), (57, 5, 1234), (300, 7, 99)):
        frame = pandas.DataFrame({"x": range(count)})
        write({"sample": count, "seed": seed, "shots": [int(i) for i in frame.sample(take, random_state=seed).index]})
    draw = random.Random(1)
    texts = TEXTS + ["".join(draw.choice(PIECES) for _ in range(draw.randint(1, 9))) for _ in range(700)]
    write({"answers": [[text, mmlu.postprocess([text], "ABCD", "", True)] for text in texts]})


if __name__ == "__main__":
    main()
