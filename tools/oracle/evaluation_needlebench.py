#!/usr/bin/env python3
"""Golden prompts and scores of MindSpeed-LLM's needlebench and AGIEval, by a plain reading of what it does.

  pip install tokenizers==0.23.3 tiktoken==0.14.0 xxhash
  python tools/oracle/evaluation_needlebench.py > tests/golden/evaluation/needlebench.jsonl

Written after eval_impl/needlebench_single.py, needlebench_eval.py, agi_eval.py and their eval_utils of MindSpeed-LLM 2.0;
random numbers are Python's. Reads tests/golden/evaluation/mindspeed. Lengths are counted in tokens of
stories_tokenizer.json, and in those of a file of ranks (cl100k_base.tiktoken) that has bytes and a few merges. Writes an
object a line: layouts with their prompts, or for the default ones a hash of all, and texts with their scores.
"""
import base64
import json
import pathlib
import random
import re

import tiktoken
import xxhash
from tokenizers import Tokenizer

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/evaluation"
DATA = GOLDEN / "mindspeed"
# The pattern of cl100k_base, as tiktoken_ext/openai_public.py has it.
PATTERN = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"
           r"\s+(?!\S)|\s")
MERGES = ["th", "the", " the", "er", "in", " i", "re", "今天".encode()[:2], "的"]


def records(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


class Stories:
    def __init__(self):
        self.inner = Tokenizer.from_file(str(GOLDEN / "stories_tokenizer.json"))

    def encode(self, text):
        return self.inner.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.inner.decode(ids, skip_special_tokens=False)


def ranks():
    pieces = [bytes([i]) for i in range(256)]
    pieces += [m if isinstance(m, bytes) else m.encode() for m in MERGES]
    return {piece: rank for rank, piece in enumerate(pieces)}


def byte_pairs():
    return tiktoken.Encoding("few", pat_str=PATTERN, mergeable_ranks=ranks(), special_tokens={})


# File, language of the needles, text around the document, and what splits a question in two.
HAYSTACKS = {
    "en": ("PaulGrahamEssays", "English", "You are an intelligent AI assistant skilled in answering user questions.\n"
           "Please keep your answers concise and clear. Do not talk about irrelevant topics or repeat your answers.\n"
           "The document given to you by the user is ", "\n\nNow, the question is: ", "Please answer in the format",
           "Before answering, please consider what in the document is most relevant to this question. "),
    "zh": ("zh_finance", "Chinese", "你是一个善于回答用户问题的智能AI助手\n请保持你的回答简洁清楚。不要说和下面文档中的无关的话，或重复你的回答\n"
           "用户现在给你的文档是", "\n\n现在请问：", "请按照", "在回答之前，请思考文档中与此问题最相关的内容是什么。")}


def needle_prompts(tokenizer, language, lengths, depths, repeats, buffer):
    """One list of (subject, prompt, needle, keyword), in the order of the data sets."""
    name, spoken, before, asks, mark, hint = HAYSTACKS[language]
    out = []
    for length in lengths:
        for depth in depths:
            texts = [r["text"] for r in records(DATA / f"needlebench/{name}.jsonl")]
            for counter in range(repeats):
                random.seed(counter)
                random.shuffle(texts)
                needles = [r for r in records(DATA / "needlebench/needles.jsonl") if r["language"] == spoken]
                random.seed(counter)
                drawn = random.choice(needles)
                needle = "\n" + drawn["needle"] + "\n"
                room = max(length - buffer - len(tokenizer.encode(needle)), 0)
                hay = []
                for text in texts:
                    hay += tokenizer.encode(text)
                    if len(hay) >= room:
                        break
                hay = hay[:room]
                at = int(len(hay) * (depth / 100))
                document = tokenizer.decode(hay[:at] + tokenizer.encode(needle) + hay[at:])
                parts = drawn["retrieval_question"].split(mark)
                prompt = before + document + asks + parts[0] + hint + mark + parts[1]
                out.append([f"{name}_{length}_{depth:.4g}", prompt, needle, drawn["arg2"]])
    return out


def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        next_row = [i + 1]
        for j, y in enumerate(b):
            next_row.append(min(row[j + 1] + 1, next_row[j] + 1, row[j] + (x != y)))
        row = next_row
    return row[-1]


def needle_score(answer, needle, keyword):
    text, wanted = re.sub(r"\s+", "", answer), re.sub(r"\s+", "", needle)
    least, most = int(0.8 * len(wanted)), int(1.2 * len(wanted))
    text = text[:most]
    if len(text) > least and wanted[-1] in text[least:]:
        text = text[:least + text[least:].index(wanted[-1]) + 1]
    longer = max(len(text), len(wanted))
    likeness = 1 - distance(text, wanted) / longer
    return 1 if keyword in answer else 0.2 * likeness


def agieval_prompts(subject):
    few, options_word, answer_word = json.loads((DATA / "fewshot/AGI_fewshot.json").read_text("utf-8"))[subject]
    out = []
    for item in records(DATA / f"agieval/{subject}.jsonl"):
        question = item["passage"] + "\n" + item["question"] if item["passage"] else item["question"]
        options = "\n".join(item["options"]) if item["options"] else ""
        if item["label"]:
            right = ",".join(item["label"]) if isinstance(item["label"], list) else item["label"]
        else:
            right = item["answer"].replace("$", "")
        out.append([f"{few}   {question}\n{options_word}\n{options}\n{answer_word}", right])
    return out


def agieval_answer(text):
    lines = text.lstrip().splitlines()
    return lines[0].replace("$", "").replace("(", "").replace(")", "") if lines else ""


def main():
    def write(record):
        print(json.dumps(record, ensure_ascii=False))

    tokenizers = {"stories": Stories(), "few": byte_pairs()}
    write({"ranks": "".join(f"{base64.b64encode(piece).decode()} {rank}\n" for piece, rank in ranks().items())})
    for language in HAYSTACKS:
        for name, tokenizer in tokenizers.items():
            for lengths, depths, repeats, buffer in (([80, 150], [0, 33, 100], 3, 20), ([40], [50], 2, 200)):
                write({"language": language, "tokenizer": name, "lengths": lengths, "depths": depths, "repeats": repeats,
                       "buffer": buffer,
                       "prompts": needle_prompts(tokenizer, language, lengths, depths, repeats, buffer)})
    linear = [100 / 19 * i for i in range(20)]
    table = [0, 10, 21, 31, 42, 52, 63, 73, 84, 94, 100]
    for thousands, lengths, depths, buffer in ((4, [1000, 2000, 3000, 4000], linear, 600),
                                               (8, [5000, 6000, 7000, 8000], linear, 600),
                                               (32, [9000, 13000, 17000, 21000, 25000, 29000, 31000, 32000], table, 3000),
                                               (256, [32000, 128000, 256000], table, 600)):
        made = needle_prompts(tokenizers["stories"], "en", lengths, depths, 10, buffer)
        made += needle_prompts(tokenizers["stories"], "zh", lengths, depths, 10, 200)
        hashed = xxhash.xxh3_128()
        for _, prompt, _, _ in made:
            hashed.update(f"{len(prompt.encode())}:{prompt}".encode())
        write({"thousands": thousands, "count": len(made), "subjects": sorted({s for s, _, _, _ in made}), "hash": hashed.hexdigest()})
    needle, keyword = "\nHidden on Blue Island is the legendary Silver Lamp.\n", "Silver Lamp"
    draw = random.Random(2)
    words = needle.split() + ["Blue", "lamp", ".", "灯", "\u3000", "and"]
    texts = ["", " ", "Silver Lamp", "The Silver Lamp is there.", "silver lamp", needle, needle.replace("Silver", "Gold"),
             needle.replace("Silver", "Gold") + "And more. And more.", "银灯"]
    texts += [" ".join(draw.choice(words) for _ in range(draw.randint(1, 14))) for _ in range(60)]
    write({"needle": needle, "keyword": keyword, "scores": [[t, needle_score(t, needle, keyword)] for t in texts]})
    for path in sorted((DATA / "agieval").iterdir()):
        write({"agieval": path.stem, "prompts": agieval_prompts(path.stem)})
    texts = ["", "\n\n", " B", "B ", "(B)\nC", "$2$", "\r\nA\rB", "A\x0bB", "A\u2028B", "A\x85B", "A\x1cB", "\u3000(C) is", "A,D\n"]
    write({"agieval_answers": [[text, agieval_answer(text)] for text in texts]})


if __name__ == "__main__":
    main()
