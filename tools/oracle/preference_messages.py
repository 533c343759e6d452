"""Preference pairs whose fields are lists of messages, as Transformers renders, tokenizes and masks them.

    python tools/oracle/preference_messages.py > tests/golden/instruct/pairs_messages.jsonl     (transformers 5.23)

Records have the forms of TRL's conversational preference data: the prompt apart, or inside of chosen and rejected; some
have a text in place of a list. With the templates of tests/golden/chat and its tokenizer bpe. A head, then a line for each
record and template: the record, and of its `chosen` and `rejected` conversation the `text`, the `ids`, and the `mask` of the
last answer: the generation blocks that end after its beginning, or else what follows the prompt with add_generation_prompt.
"""
import datetime
import json
import pathlib

import transformers
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/chat"
TEMPLATES = ("qwen2.5", "qwen2.5-training", "phi-3-training", "phi-3.5")
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def say(role, content):
    return {"role": role, "content": content}


ASK, GOOD, BAD = say("user", "What is 2+2?"), say("assistant", "4, as 2+2=4."), say("assistant", "5")
EARLIER = [say("system", "Be terse."), say("user", "q0"), say("assistant", "a0"), say("user", "e\u0301 😀?")]
RECORDS = [
    {"prompt": [ASK], "chosen": [GOOD], "rejected": [BAD]},
    {"chosen": [ASK, GOOD], "rejected": [ASK, BAD]},
    {"prompt": "What is 2+2?", "chosen": [ASK, GOOD], "rejected": [ASK, BAD]},
    {"prompt": EARLIER, "chosen": "yes </s>", "rejected": [say("assistant", " no\n")]},
    {"chosen": EARLIER + [GOOD], "rejected": EARLIER + [say("assistant", [{"type": "text", "text": "<|im_end|> x"}])]},
    {"prompt": "q", "chosen": [GOOD], "rejected": "{{ 7*7 }}"},
]


def flat(message):
    parts = message["content"]
    return message if isinstance(parts, str) else say(message["role"], "".join(part["text"] for part in parts))


def messages_of(record, key):
    prompt = record.get("prompt", [])
    prompt = [say("user", prompt)] if isinstance(prompt, str) else prompt
    answer = record[key]
    answer = [say("assistant", answer)] if isinstance(answer, str) else answer
    return [flat(one) for one in (answer if answer[0]["role"] != "assistant" else prompt + answer)]


def last_answer(tokenizer, template, messages):
    """Ranges of characters [begin, end) of the text that are learned."""
    text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False)
    if "{%- generation" in template or "{% generation" in template:
        _, ranges = chat_template_utils.render_jinja_template(
            [messages], chat_template=template, return_assistant_tokens_mask=True, add_generation_prompt=False,
            **tokenizer.special_tokens_map)
        answer = text.rindex(messages[-1]["content"].strip())
        return [one for one in ranges[0] if one[1] > answer]
    before = tokenizer.apply_chat_template(messages[:-1], chat_template=template, tokenize=False, add_generation_prompt=True)
    assert text.startswith(before)
    return [(len(before), len(text))]


def main():
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(GOLDEN / "bpe/tokenizer.json"), **SPECIAL)
    print(json.dumps({"by": f"tools/oracle/preference_messages.py, transformers {transformers.__version__}",
                      "date": str(datetime.date.today())}))
    for record in RECORDS:
        for name in TEMPLATES:
            template = (GOLDEN / f"templates/{name}.jinja").read_text()
            line = {"template": name, "record": record}
            for key in "chosen", "rejected":
                messages = messages_of(record, key)
                text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False)
                ids = tokenizer.apply_chat_template(messages, chat_template=template, return_dict=True)["input_ids"]
                offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
                ranges = last_answer(tokenizer, template, messages)
                mask = "".join(str(int(any(begin < stop and end > start for start, stop in ranges)))
                               for begin, end in offsets)
                assert len(mask) == len(ids)
                line[key] = {"text": text, "ids": ids, "mask": mask}
            print(json.dumps(line, ensure_ascii=False, separators=(",", ":")))


main()
