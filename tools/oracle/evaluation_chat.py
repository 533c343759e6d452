#!/usr/bin/env python3
"""Golden prompts of evaluation tasks under a chat template, by lm-evaluation-harness.

  pip install lm_eval==0.4.13 xxhash torch transformers accelerate
  python tools/oracle/evaluation_chat.py

Reads the small data sets in tests/golden/evaluation/data. Writes tests/golden/evaluation/chat.jsonl: first the
templates by name, then an object for each task, template and value of fewshot_as_multiturn.
"""

import json
import os
from functools import partial
from types import SimpleNamespace

from transformers import PreTrainedTokenizerFast
from lm_eval.models.huggingface import HFLM

from evaluation import GOLDEN, cases, make_task

TEMPLATES = {
    "chatml": "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
              "'<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
              "{% endif %}",
    # As Gemma's: no system message, and white space around contents is removed.
    "turns": "{{ '<s>' }}{% for message in messages %}{% if message['role'] == 'system' %}"
             "{{ raise_exception('no system message') }}{% endif %}{{ '[' + message['role'] + '] ' + "
             "message['content'] | trim + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '[model] ' }}{% endif %}",
}


def main():
    with open(os.path.join(GOLDEN, "chat.jsonl"), "w") as out:
        out.write(json.dumps(TEMPLATES) + "\n")
        for name, subject, yaml_file, rows, shots in cases(os.path.join(GOLDEN, "data"), None):
            for template, source in TEMPLATES.items():
                for multiturn in (False, True):
                    if name == "wikitext" or (name == "bbh" and multiturn):
                        continue
                    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(GOLDEN, "stories_tokenizer.json"),
                                                        bos_token="<s>", eos_token="</s>")
                    tokenizer.chat_template = source
                    model = SimpleNamespace(tokenizer=tokenizer, chat_template_args={})
                    task = make_task(yaml_file, rows, shots)
                    task.build_all_requests(limit=None, rank=0, world_size=1, apply_chat_template=True,
                                            fewshot_as_multiturn=multiturn,
                                            chat_template=partial(HFLM.apply_chat_template, model))
                    samples = {}
                    for instance in sorted(task.instances, key=lambda i: (i.doc_id, i.idx)):
                        sample = samples.setdefault(instance.doc_id, {"contexts": [], "continuations": []})
                        sample["contexts"].append(instance.args[0])
                        if task.OUTPUT_TYPE != "generate_until":
                            sample["continuations"].append(instance.args[1])
                    for sample in samples.values():
                        if len(set(sample["contexts"])) == 1:
                            sample["contexts"] = sample["contexts"][:1]
                    out.write(json.dumps({"task": name, "subject": subject, "template": template,
                                          "multiturn": multiturn, "num_shots": shots,
                                          "samples": list(samples.values())}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
