"""Samples of instruction data by the rules of AscendSpeed's and MindSpeed-LLM's handlers, as golden numbers.

    python -m venv VENV && VENV/bin/pip install transformers
    VENV/bin/python tools/oracle/instruction_handlers.py SHARED > tests/golden/instruct/samples.jsonl

A plain reading of the rules in their documentation. Tokenizers are those of Hugging Face. Of files in SHARED only checksums
are kept; the small records next to the golden file are kept with all ids.
"""
import bisect
import datetime
import glob
import json
import os
import re
import sys
import zlib
from array import array

import numpy
import transformers

IGNORED = -100
SHARED = sys.argv[1]
HERE = os.path.join(os.path.dirname(__file__), "../../tests/golden/instruct")
SYSTEM = ("Below is an instruction that describes a task, paired with an input that provides further context. Write a response that "
          "appropriately completes the request. Please note that you need to think through your response logically and step by step.")
IM = "<|im_start|>%s\n{}<|im_end|>\n"
CHATML = {"user": IM % "user" + "<|im_start|>assistant\n", "system": IM % "system", "tool": IM % "tool" + "<|im_start|>assistant\n",
          "separator": "\n", "stop": "<|im_end|>"}
# bos: "prefix" before everything, "user" before each question. end: False where turns have no end-of-turn token of their own.
TEMPLATES = {
    "empty": {"user": "{}", "end": None},
    "default": {"user": "Human: {}\nAssistant:", "system": "{}\n", "separator": "\n"},
    "alpaca": {"user": "### Instruction:\n{}\n\n### Response:\n", "separator": "\n\n", "default_system":
               "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"},
    "qwen": {**CHATML, "default_system": "You are a helpful assistant."},
    "chatml": CHATML,
    "qwen3": {**CHATML, "separator": "", "answer": "{}<|im_end|>\n", "end": None, "thoughts": True,
              "tool": "<|im_start|>user\n<tool_response>\n{}\n</tool_response><|im_end|>\n<|im_start|>assistant\n", "tools": "qwen"},
    "intern2": {**CHATML, "separator": "", "answer": "{}<|im_end|>\n", "end": None, "bos": "prefix"},
    "llama2": {"user": "[INST] {} [/INST]", "system": "<<SYS>>\n{}\n<</SYS>>\n\n", "bos": "user", "system_inside": True},
    "mistral": {"user": "[INST] {} [/INST]", "bos": "prefix"},
    "deepseek2": {"user": "User: {}\n\nAssistant:", "system": "{}\n\n", "bos": "prefix"},
    "gemma": {"user": "<start_of_turn>user\n{}<end_of_turn>\n<start_of_turn>model\n", "separator": "<end_of_turn>\n", "bos": "prefix",
              "end": "next"},
    "baichuan2": {"user": "<reserved_106>{}<reserved_107>", "end": "next"},
    "glm4": {"user": "<|user|>\n{}<|assistant|>", "answer": "\n{}", "system": "<|system|>\n{}", "prefix": "[gMASK]<sop>", "end": "next"},
}


def strip(text, *marks):
    for mark in marks:
        text = text.replace(mark, "")
    return text.strip()


# ---- records to conversations: system, tools, [(role, text)], rejected ----

def alpaca(record, keys):
    turns = []
    for question, answer in record.get(keys.get("history", "history")) or []:
        turns += [("user", question), ("assistant", answer)]
    said = [record.get(keys.get("prompt", "instruction")), record.get(keys.get("query", "input"))]
    turns.append(("user", "\n".join(part for part in said if part)))
    chosen = "chosen" in record
    turns.append(("assistant", record[keys.get("response", "chosen" if chosen else "output")]))
    return record.get("system") or "", "", turns, record.get("rejected")


def sharegpt(record, keys):
    tags = {"role_tag": "from", "content_tag": "value", "user_tag": "human", "assistant_tag": "gpt", "observation_tag": "observation",
            "function_tag": "function_call", "system_tag": "system", **keys.get("tags", {})}
    roles = {tags[role + "_tag"]: role for role in ("user", "assistant", "observation", "function", "system")}
    turns = [(roles[m[tags["role_tag"]]], m[tags["content_tag"]]) for m in record[keys.get("messages", "conversations")]]
    rejected = None
    if "chosen" in record:
        turns.append(("assistant", record["chosen"][tags["content_tag"]]))
        rejected = record["rejected"][tags["content_tag"]]
    system = record.get("system") or ""
    if turns[0][0] == "system":
        system, turns = turns[0][1], turns[1:]
    return system, record.get("tools") or "", turns, rejected


def messages(record, keys):
    system, turns = "", []
    for message in record["messages"]:
        role, content = message["role"], message.get("content") or ""
        if role == "system":
            system = content
        elif message.get("tool_calls"):
            calls = [c["function"] for c in message["tool_calls"]]
            calls = [{"name": c["name"], "arguments": json.loads(c["arguments"]) if isinstance(c["arguments"], str) else c["arguments"]}
                     for c in calls]
            turns.append(("function", json.dumps(calls)))
        else:
            turns.append(({"tool": "observation"}.get(role, role), content))
    return system, json.dumps(record["tools"]) if record.get("tools") else "", turns, None


def instruction(record, keys):
    return "", "", [("user", record["instruction"] + "\n" + record.get("input", "")), ("assistant", record["output"])], None


def belle(record, keys):
    turns = []
    for turn in filter(None, record["instruction"].split("Human:")):
        question, _, answer = turn.partition("Assistant:")
        turns += [("user", question.strip()), ("assistant", answer.strip())]
    turns[-1] = ("assistant", record["output"].strip())
    return "", "", turns, None


def moss(record, keys):
    turns = []
    for turn in record["chat"].values():
        turns += [("user", strip(turn["Human"], "<eoh>", "<|Human|>: ")), ("assistant", strip(turn["MOSS"], "<|MOSS|>:", "<eom>"))]
    return "", "", turns, None


def leetcode(record, keys):
    return "", "", [("user", record["code_with_problem"].split("```")[0].strip()),
                    ("assistant", record["code_only"] + "\n" + record["explanation_only"])], None


# ---- conversations to [(ids, labels)] ----

def seed_sample(tokenizer, turns):
    """The whole prompt as one text; tokens that begin before the last answer are not learned."""
    text = "\n" + SYSTEM + "\n"
    for role, content in turns:
        text += "### Instruction:\n" if role == "user" else "### Response:\n"
        begin = len(text)
        text += content + "\n"
    encoding = tokenizer(text, return_offsets_mapping=True)
    ids = encoding["input_ids"]
    special = set(tokenizer.all_special_ids)
    labels = [IGNORED if i in special or first < begin else i for i, (first, _) in zip(ids, encoding["offset_mapping"])]
    return ids, labels


def plain_tool(tool):
    return tool.get("function", tool)


def tools_text(template, tools):
    if not tools:
        return ""
    tools = json.loads(tools)
    if template.get("tools") == "qwen":
        wrapped = [t if t.get("type") == "function" else {"type": "function", "function": t} for t in tools]
        return ("\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function "
                "signatures within <tools></tools> XML tags:\n<tools>" + "".join("\n" + json.dumps(t, ensure_ascii=False) for t in wrapped)
                + "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
                "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>")
    text = ""
    for tool in map(plain_tool, tools):
        text += f"> Tool Name: {tool['name']}\nTool Description: {tool['description']}\nTool Args:\n"
        for name, about in tool["parameters"]["properties"].items():
            needed = ", required" if name in tool["parameters"].get("required", []) else ""
            one_of = f", should be one of [{', '.join(about['enum'])}]" if about.get("enum") else ""
            text += f"  - {name} ({about['type']}{needed}): {about['description']}{one_of}\n"
        text += "\n"
    names = ", ".join(plain_tool(t)["name"] for t in tools)
    return (f"You have access to the following tools:\n{text}Use the following format if using a tool:\n```\nAction: tool name (one of "
            f"[{names}]).\nAction Input: the input to the tool, in a JSON format representing the kwargs (e.g. "
            "```{\"input\": \"hello world\", \"num_beams\": 5}```).\n```\n")


def function_text(template, content):
    calls = json.loads(content)
    calls = calls if isinstance(calls, list) else [calls]
    if template.get("tools") == "qwen":
        return "\n".join("<tool_call>\n" + json.dumps({"name": c["name"], "arguments": c["arguments"]}, ensure_ascii=False) + "\n</tool_call>"
                         for c in calls)
    call, = calls
    return f"Action: {call['name']}\nAction Input: {json.dumps(call['arguments'], ensure_ascii=False)}"


def template_turns(tokenizer, template, conversation, thinking, last_alone=False):
    """[(ids before the answer, ids of the answer)], each element encoded alone. thinking: True, False or None."""
    system, tools, turns, _ = conversation
    eos = tokenizer.convert_tokens_to_ids(template["stop"]) if "stop" in template else tokenizer.eos_token_id
    bos = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False) if text else []
    forget = lambda text: re.sub("<think>.*?</think>", "", text, flags=re.DOTALL).lstrip("\n")
    empty = encode("<think>\n\n</think>\n\n")
    system = (system or template.get("default_system", "")) + tools_text(template, tools)
    pairs = []
    for i in range(0, len(turns), 2):
        role, question = turns[i]
        answering, answer = turns[i + 1]
        source, inside = [], ""
        if i == 0:
            source += bos if template.get("bos") == "prefix" else []
            source += encode(template.get("prefix", ""))
            if system and template.get("system_inside"):
                inside = template["system"].format(system)
            elif system:
                source += encode(template.get("system", "{}").replace("{}", system))
        else:
            source += encode(template.get("separator", ""))
        if role == "observation" and "tool" in template:
            source += encode(template["tool"].replace("{}", question))
        else:
            source += bos if template.get("bos") == "user" else []
            source += encode(template["user"].replace("{}", inside + question))
        if template.get("thoughts") and (thinking is False or (last_alone and i + 2 < len(turns))):
            answer = forget(answer)
        said = function_text(template, answer) if answering == "function" else answer
        target = encode(template.get("answer", "{}").replace("{}", said))
        if template.get("end", "own") == "own":
            target.append(eos)
        of_last = not last_alone or i + 2 == len(turns)
        if template.get("thoughts") and of_last and "<think>" not in answer and "</think>" not in answer:
            if thinking:
                target = empty + target
            else:
                source += empty
        pairs.append((source, target))
    return pairs, eos


def cut_lengths(source, target, most):
    """LlamaFactory's rule: cut the longer part, or both in proportion."""
    if target * 2 < most:
        kept = most
    elif source * 2 < most:
        kept = most - source
    else:
        kept = int(most * (target / (source + target)))
    kept = min(kept, target)
    return min(max(most - kept, 0), source), kept


def join(pairs, eos, late_end, cutoff):
    ids, labels = [], []
    for source, target in pairs:
        if cutoff:
            left = cutoff - late_end - len(ids)
            if left <= 0:
                break
            s, t = cut_lengths(len(source), len(target), left)
            source, target = source[:s], target[:t]
        labels += [eos] + [IGNORED] * (len(source) - 1) if ids and late_end and source else [IGNORED] * len(source)
        ids += source + target
        labels += target
    return (ids + [eos], labels + [eos]) if late_end else (ids, labels)


def template_samples(tokenizer, template, conversation, case):
    cutoff = case.get("cutoff_len")
    if case.get("seq_length") and (cutoff or case.get("neat_pack")):
        cutoff = min(cutoff or case["seq_length"], case["seq_length"] - 1)
    late_end = template.get("end", "own") == "next"
    if conversation[3] is None:
        pairs, eos = template_turns(tokenizer, template, conversation, case.get("enable_thinking"))
        return [join(pairs, eos, late_end, cutoff)]
    samples = []
    for last in (conversation[2][-1], ("assistant", conversation[3])):
        pairs, eos = template_turns(tokenizer, template, (*conversation[:2], conversation[2][:-1] + [last], None),
                                    case.get("enable_thinking"), last_alone=True)
        before = sum((s + t for s, t in pairs[:-1]), []) + pairs[-1][0]
        samples.append(join([(before, pairs[-1][1])], eos, late_end, cutoff))
    return samples


def baichuan_sample(tokenizer, turns):
    ids, labels = [], []
    for (_, question), (_, answer) in zip(turns[::2], turns[1::2]):
        asked, said = (tokenizer.encode(text, add_special_tokens=False) for text in (question, answer))
        ids += [195, *asked, 196, *said]
        labels += [tokenizer.eos_token_id, *[IGNORED] * (len(asked) + 1), *said]
    return ids + [tokenizer.eos_token_id], labels + [tokenizer.eos_token_id]


# ---- data sets to three (or four) files ----

def pack(samples, length, pad, neat):
    """Best fit: each sequence takes the longest remaining sample that still fits."""
    free = sorted((len(s[0]), i) for i, s in enumerate(samples))
    packed = []
    while free:
        ids, mask, labels, left, number = [], [], [], length - 1, 0
        while (at := bisect.bisect(free, (left, len(samples)))) > 0:
            size, i = free.pop(at - 1)
            left, number = left - size, number + 1
            ids += samples[i][0]
            labels += samples[i][1]
            mask += [number if neat else 1] * size
        rest = length - len(ids)
        packed.append((ids + [pad] * rest, mask + [0 if neat else 1] * rest, labels + [IGNORED] * rest))
    return packed


def mixed(sizes, case):
    """The order of datasets.interleave_datasets."""
    starts = numpy.cumsum([0] + sizes[:-1])
    over = case["mix_strategy"] == "interleave_over"
    if "interleave_probs" not in case:
        rounds = max(sizes) if over else min(sizes)
        return [int(start + i % size) for i in range(rounds) for start, size in zip(starts, sizes)]
    generator, at, ended, order = numpy.random.default_rng(case.get("seed", 1234)), [0] * len(sizes), [False] * len(sizes), []
    probabilities = [float(p) for p in case["interleave_probs"].split(",")]
    while True:
        for chosen in generator.choice(len(sizes), size=1000, p=probabilities):
            if all(ended) if over else any(ended):
                return order
            order.append(int(starts[chosen]) + at[chosen])
            at[chosen] += 1
            if at[chosen] == sizes[chosen]:
                ended[chosen], at[chosen] = True, 0


FORMATS = {"GeneralInstructionHandler": instruction, "BelleMultiTurnInstructionHandler": belle, "MOSSInstructionHandler": moss,
           "MOSSMultiTurnHandler": moss, "LeetcodePythonInstructionHandler": leetcode, "AlpacaStyleInstructionHandler": alpaca,
           "SharegptStyleInstructionHandler": sharegpt, "OpenAIInstructionHandler": messages, "AlpacaStylePairwiseHandler": alpaca,
           "SharegptStylePairwiseHandler": sharegpt}


def records_of(path):
    text = open(path, encoding="utf-8").read()
    if path.endswith(".jsonl"):
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    value = json.loads(text)
    return value if isinstance(value, list) else [value]


def samples_of(case, tokenizer, record):
    handler = case["handler"]
    conversation = FORMATS[handler](record, case.get("map_keys", {}))
    if "prompt" in case:
        samples = template_samples(tokenizer, TEMPLATES[case["prompt"]], conversation, case)
    elif handler == "MOSSMultiTurnHandler":
        samples = [baichuan_sample(tokenizer, conversation[2])]
    else:
        turns = conversation[2]
        ends = range(2, len(turns) + 1, 2) if handler == "MOSSInstructionHandler" else [len(turns)]
        samples = [seed_sample(tokenizer, turns[:end]) for end in ends]
    if case.get("append_eod"):
        eos = tokenizer.eos_token_id
        samples = [(ids + [eos], labels + [eos]) for ids, labels in samples]
    if "Pairwise" in handler:
        return [samples[0] + samples[1]]
    teaches = lambda labels: any(label != IGNORED for label in labels[1:])
    return [s for s in samples if teaches(s[1]) and (not case.get("seq_length") or len(s[0]) < case["seq_length"])]


def columns_of(case, tokenizers):
    tokenizer = tokenizers[case["tokenizer"]]
    sets = []
    for name in case["input"]:
        path = os.path.join(HERE, name) if os.path.exists(os.path.join(HERE, name)) else os.path.join(SHARED, "data/instruct", name)
        files = sorted(glob.glob(path + "/*")) if os.path.isdir(path) else [path]
        documents = [d for f in files for r in records_of(f) if (d := samples_of(case, tokenizer, r))]
        sets.append(documents[:case.get("max_samples")])
    documents = sum(sets, [])
    if "mix_strategy" in case:
        documents = [documents[i] for i in mixed([len(s) for s in sets], case)]
    samples = sum(documents, [])
    if "Pairwise" in case["handler"]:
        return [list(column) for column in zip(*samples)]
    if case.get("pack") or case.get("neat_pack"):
        pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        samples = pack(samples, case["seq_length"], pad, case.get("neat_pack"))
    else:
        samples = [(ids, [1] * len(ids), labels) for ids, labels in samples]
    return [list(column) for column in zip(*samples)]


def crc(column):
    return zlib.crc32(b"".join(array("i", ids).tobytes() for ids in column))


def cases():
    seed = ["GeneralInstructionHandler", "BelleMultiTurnInstructionHandler", "MOSSInstructionHandler", "LeetcodePythonInstructionHandler"]
    small = {"GeneralInstructionHandler": "alpaca.jsonl", "BelleMultiTurnInstructionHandler": "belle.jsonl",
             "MOSSInstructionHandler": "moss.jsonl", "LeetcodePythonInstructionHandler": "leetcode.jsonl"}
    for tokenizer in ("qwen2.5", "llama2"):
        for handler in seed:
            yield {"handler": handler, "tokenizer": tokenizer, "input": [small[handler]], "keep": True}
            yield {"handler": handler, "tokenizer": tokenizer, "input": [small[handler]], "append_eod": True}
        yield {"handler": "MOSSMultiTurnHandler", "tokenizer": tokenizer, "input": ["moss.jsonl"], "keep": True}
        for name in ("alpaca_en_demo.json", "alpaca_zh_demo.json", "identity.json"):
            yield {"handler": "GeneralInstructionHandler", "tokenizer": tokenizer, "input": [name]}
        yield {"handler": "MOSSInstructionHandler", "tokenizer": tokenizer, "input": ["moss"]}
        yield {"handler": "MOSSMultiTurnHandler", "tokenizer": tokenizer, "input": ["moss"]}
        names = [name for name in TEMPLATES if tokenizer == "qwen2.5" or "stop" not in TEMPLATES[name]]
        for name in names:
            if name == "intern2" and tokenizer == "llama2":
                continue
            alpaca_case = {"handler": "AlpacaStyleInstructionHandler", "tokenizer": tokenizer, "prompt": name}
            yield {**alpaca_case, "input": ["alpaca.jsonl"], "keep": name in ("qwen", "llama2", "gemma")}
            yield {**alpaca_case, "input": ["alpaca_en_demo.json"]}
            chat = {"handler": "SharegptStyleInstructionHandler", "tokenizer": tokenizer, "prompt": name}
            yield {**chat, "input": ["sharegpt.jsonl"], "keep": name in ("qwen", "llama2", "gemma")}
            yield {**chat, "input": ["conversation.json"]}
    qwen = {"tokenizer": "qwen2.5", "prompt": "qwen"}
    yield {"handler": "AlpacaStyleInstructionHandler", **qwen, "input": ["alpaca_zh_demo.json"]}
    yield {"handler": "AlpacaStyleInstructionHandler", **qwen, "input": ["alpaca_zh_demo.json"], "append_eod": False, "seq_length": 128}
    yield {"handler": "AlpacaStyleInstructionHandler", **qwen, "input": ["alpaca_zh_demo.json"], "cutoff_len": 64}
    yield {"handler": "SharegptStyleInstructionHandler", **qwen, "input": ["Belle_sampled_qwen.json"],
           "map_keys": {"tags": {"user_tag": "user", "assistant_tag": "assistant"}}}
    yield {"handler": "SharegptStyleInstructionHandler", **qwen, "input": ["conversation.json"], "cutoff_len": 500}
    for name in ("qwen", "qwen3", "default"):
        yield {"handler": "OpenAIInstructionHandler", **qwen, "prompt": name, "input": ["messages.jsonl"], "keep": True,
               **({"enable_thinking": False} if name == "qwen3" else {})}
    for thinking in (False, True):
        yield {"handler": "SharegptStyleInstructionHandler", **qwen, "prompt": "qwen3", "input": ["thoughts.jsonl"], "keep": True,
               "enable_thinking": thinking}
    for name in ("AlpacaStylePairwiseHandler", "SharegptStylePairwiseHandler"):
        for template, tokenizer in (("qwen", "qwen2.5"), ("gemma", "llama2")):
            yield {"handler": name, "tokenizer": tokenizer, "prompt": template, "keep": True,
                   "input": ["pairs_alpaca.jsonl" if "Alpaca" in name else "pairs_sharegpt.jsonl"]}
    en = {"handler": "AlpacaStyleInstructionHandler", **qwen, "input": ["alpaca_en_demo.json"]}
    yield {**en, "seq_length": 256, "pack": True}
    yield {**en, "seq_length": 256, "neat_pack": True}
    both = {**en, "input": ["alpaca_en_demo.json", "identity.json", "alpaca_zh_demo.json"]}
    yield {**both, "max_samples": 50}
    yield {**both, "mix_strategy": "interleave_under"}
    yield {**both, "mix_strategy": "interleave_over"}
    for seed in (1234, 7):
        yield {**both, "mix_strategy": "interleave_under", "interleave_probs": "0.5,0.2,0.3", "seed": seed}
        yield {**both, "mix_strategy": "interleave_over", "interleave_probs": "0.5,0.2,0.3", "seed": seed}
    yield {**both, "mix_strategy": "interleave_over", "interleave_probs": "0.5,0.2,0.3", "seq_length": 512, "neat_pack": True}


def main():
    folder = os.path.join(SHARED, "data/tokenizers")
    tokenizers = {"qwen2.5": transformers.AutoTokenizer.from_pretrained(os.path.join(folder, "qwen2.5")),
                  # LlamaTokenizer of Transformers 5 builds its own steps; this is the file as it is.
                  "llama2": transformers.PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "llama2/tokenizer.json"),
                                                                 bos_token="<s>", eos_token="</s>", unk_token="<unk>")}
    print(json.dumps({"origin": f"transformers {transformers.__version__}, numpy {numpy.__version__}: "
                                f"python tools/oracle/instruction_handlers.py, {datetime.date.today()}"}))
    for case in cases():
        keep = case.pop("keep", False)
        columns = columns_of(case, tokenizers)
        labels = columns[-1]
        result = {**case, "sequences": len(labels), "tokens": sum(map(len, labels)), "crc": [crc(column) for column in columns]}
        if keep:
            result["columns"] = columns
        print(json.dumps(result))


main()
