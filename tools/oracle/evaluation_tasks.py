#!/usr/bin/env python3
"""Golden prompts and scores of the tasks that evaluation.py does not run, by lm-evaluation-harness.

  pip install lm_eval==0.4.13 xxhash torch transformers accelerate sympy
  python tools/oracle/evaluation_tasks.py

Writes made-up questions in the columns of the published data sets to tests/golden/evaluation/data, and
tests/golden/evaluation/tasks.jsonl: an object a task, as evaluation.py writes them, with answers that are
written below or drawn, not those of a model. Tasks are the task files of lm_eval itself. Programs are not
run: "program" is what would be. minerva_math runs without the equality of SymPy.
"""

import csv
import importlib
import importlib.metadata
import json
import os
import random
import sys
import types

import datasets
import evaluate
import sympy.parsing.latex

from evaluation import GOLDEN, make_task, run, task_config

DATA = os.path.join(GOLDEN, "data")


class Programs:
    """In place of the package's code_eval: remembers what it would run."""
    seen = []

    def compute(self, references, predictions, k):
        self.seen.append(f"{predictions[0][0]}\n{references[0]}\n")
        return [{f"pass@{n}": 0.0 for n in k}, {}]


def refuse_latex(text):
    raise sympy.parsing.latex.errors.LaTeXParsingError(text)


def without_missing_packages():
    evaluate.load = lambda name: Programs()
    sys.modules["antlr4"] = types.ModuleType("antlr4")
    verify = types.ModuleType("math_verify")
    verify.parse, verify.verify = (lambda text: text), (lambda gold, target: False)
    sys.modules["math_verify"] = verify
    version = importlib.metadata.version
    importlib.metadata.version = lambda name: "4.11" if name.startswith("antlr4") else version(name)
    sympy.parsing.latex.parse_latex = refuse_latex


class Answers:
    """Answers in the place of a model's."""

    def __init__(self, texts):
        self.texts = texts
        self.random = random.Random(7)

    def loglikelihood(self, instances):
        return [(round(-8 * self.random.random(), 3), False) for _ in instances]

    def generate_until(self, instances):
        return [self.texts[i % len(self.texts)] for i in range(len(instances))]


def write(path, rows):
    path = os.path.join(DATA, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", newline="") as out:
        if path.endswith(".csv"):
            writer = csv.DictWriter(out, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
        else:
            for row in rows:
                out.write(json.dumps(row, ensure_ascii=False) + "\n")
    return rows


def sciq(count, word):
    return [{"question": f"What does {word} {i} carry?", "distractor1": "3", "distractor3": f"iron {i}",
             "distractor2": "größe", "correct_answer": f"water {i}",
             "support": f"  {word} {i} carries water.\n" if i % 2 else ""} for i in range(count)]


def commonsense(count, word):
    return [{"id": f"{i:x}", "question": f" Where is the {word} {i}? ", "question_concept": word,
             "choices": {"label": list("ABCDE"), "text": ["bed", "sea", f"hill {i}", "mars", "desk"]},
             "answerKey": "ABCDE"[(3 * i + 1) % 5]} for i in range(count)]


def truthful():
    return [{"question": f"Do {animal} fly?",
             "mc1_targets": {"choices": ["No, never", "Yes", "At night"], "labels": [1, 0, 0]},
             "mc2_targets": {"choices": ["No, never", "They do not", "Yes", "At night"], "labels": [1, 1, 0, 0]}}
            for animal in ("cows", "pigs", "ants of stone")]


def mmlu_pro(count, kind):
    rows = []
    for i in range(count):
        for category in ("math", "computer science"):
            options = [f" {n + i} " for n in range(4 if i % 2 else 10)]
            rows.append({"question_id": i, "question": f"How many {kind} of {category} are {i} and 2?",
                         "options": options, "answer": "ABCDEFGHIJ"[i % len(options)], "answer_index": i % len(options),
                         "cot_content": f"A: Let's think step by step. {i} and 2 are known. The answer is (C).",
                         "category": category, "src": "made up"})
    return rows


def trivia(count, word):
    return [{"question": f"Which {word} has {i} legs", "question_id": str(i),
             "answer": {"aliases": [f"The {word.title()}-{i}", f"{word} number {i}"], "value": f"{word} {i}",
                        "normalized_aliases": [word]}} for i in range(count)]


def gpqa():
    return [{"Record ID": str(i), "Question": f" Which mass has x{i}?", "Correct Answer": f"{i}  kg [title]",
             "Incorrect Answer 1": f" {i} g ", "Incorrect Answer 2": "none" if i % 2 else f"{i}  kg [title]",
             "Incorrect Answer 3": "many, \"all\""} for i in range(6)]


def mbpp():
    return [{"task_id": 11 + i, "text": f"Write a function to add {i} to a number.",
             "code": f"def add(x):\r\n  return x + {i}", "test_setup_code": "", "challenge_test_list": [],
             "test_list": [f"assert add(1) == {1 + i}", f"assert add(2) == {2 + i}", f"assert add(-1) == {i - 1}"]}
            for i in range(2)]


def problems(kind):
    solutions = ["so $x=\\boxed{\\frac{1}{2}}$.", "We get $\\boxed{1,\\!000}$.", "Then \\boxed 7$ of them.",
                 "It is $\\boxed{[2,5)}$, not \\boxed{x \\text{ cm}}", "\\boxed{\\sqrt{2}}",
                 "\\boxed{\\$5.00}", "\\boxed{x=3}", "\\boxed{0.5}"]
    return [{"problem": f"Find {kind} {i} of $x$.", "level": "Level 1", "type": "Algebra", "solution": s}
            for i, s in enumerate(solutions)]


LETTERS = ["So the answer is (B).", "the answer is C", "answer is J). The answer is (A)", "I do not know"]
NAMES = ["  The animal-0", "the ANIMAL1", "animal number 2", "nothing"]
CODE = ["def add(x):\n  return x + 0\n", "print('no')\n"]
MATHS = ["$\\frac12$", "The answer is $1,000$ or $1000$", "7", "x", "$\\sqrt2$", "5.00", "$x = 3$", "1/2",
         "\nFinal Answer: The final answer is $\\dfrac{1}{2}$. I hope it is correct.",
         "Final Answer: The final answer is $1000$. I hope it is correct.", "Final Answer: The final answer is 7.",
         "Final Answer: The final answer is $x$ cm. I hope", "Final Answer: The final answer is $\\sqrt2$.",
         "Final Answer: The final answer is $5.00$. I hope it is correct.",
         "Final Answer: The final answer is $3$. I hope it is correct.",
         "Final Answer: The final answer is. I hope it is correct."]


def shuffled(yaml_file, rows):
    """The rows as one pass of process_docs makes them after random.seed(0). "query": make_task() leaves them so."""
    random.seed(0)
    return [{**r, "query": ""} for r in task_config(yaml_file)["process_docs"](datasets.Dataset.from_list(rows))]


def cases():
    """Task, subject, task file, rows by split, shots, written answers."""
    splits = {"train": write("sciq/train.jsonl", sciq(7, "rail")), "test": write("sciq/test.jsonl", sciq(4, "stem"))}
    yield "sciq", "", "sciq/sciq.yaml", splits, 0, []
    yield "sciq", "", "sciq/sciq.yaml", splits, 2, []
    splits = {"train": write("commonsense_qa/train.jsonl", commonsense(6, "cat")),
              "validation": write("commonsense_qa/validation.jsonl", commonsense(4, "lamp"))}
    yield "commonsense_qa", "", "commonsense_qa/default.yaml", splits, 0, []
    yield "commonsense_qa", "", "commonsense_qa/default.yaml", splits, 3, []
    for task in ("truthfulqa_mc1", "truthfulqa_mc2"):
        yield task, "", f"truthfulqa/{task}.yaml", {"validation": write(f"{task}/validation.jsonl", truthful())}, 0, []
    splits = {"test": write("mmlu_pro/test.jsonl", mmlu_pro(4, "kinds")),
              "validation": write("mmlu_pro/validation.jsonl", mmlu_pro(5, "sorts"))}
    for subject in ("math", "computer_science"):
        yield "mmlu_pro", subject, f"mmlu_pro/mmlu_pro_{subject}.yaml", splits, 5, LETTERS
    splits = {"train": write("triviaqa/train.jsonl", trivia(5, "plant")),
              "validation": write("triviaqa/validation.jsonl", trivia(4, "animal"))}
    yield "triviaqa", "", "triviaqa/default.yaml", splits, 0, NAMES
    yield "triviaqa", "", "triviaqa/default.yaml", splits, 2, NAMES
    yaml_file = "gpqa/zeroshot/gpqa_main_zeroshot.yaml"
    rows = write("gpqa_main_zeroshot/gpqa_main.csv", gpqa())
    yield "gpqa_main_zeroshot", "", yaml_file, {"train": shuffled(yaml_file, rows)}, 0, []
    yield "mbpp", "", "mbpp/mbpp.yaml", {"test": write("mbpp/test.jsonl", mbpp())}, 3, CODE
    yield "mbpp", "", "mbpp/mbpp.yaml", {"test": mbpp()}, 0, CODE
    splits = {"train": write("hendrycks_math/algebra/train.jsonl", problems("root")),
              "test": write("hendrycks_math/algebra/test.jsonl", problems("sum"))}
    yield "hendrycks_math", "algebra", "hendrycks_math/hendrycks_math_algebra.yaml", splits, 2, MATHS[:8]
    splits = {"test": write("minerva_math/algebra/test.jsonl", problems("sum"))}
    yield "minerva_math", "algebra", "minerva_math/minerva_math_algebra.yaml", splits, 4, MATHS[8:]


def write_forms():
    """Random answers: what minerva_math makes of them, and the number of the first one that is equal for
    hendrycks_math."""
    minerva = sys.modules["lm_eval.tasks.minerva_math.utils"]
    hendrycks = importlib.import_module("lm_eval.tasks.hendrycks_math.utils")
    draw = random.Random(3)
    parts = ["\\frac", "\\dfrac", "\\sqrt", "\\text{", "\\textbf{", "\\boxed{", "\\overline{", "{", "}", "[", "]", "$",
             "1", "2", "x", "é", " ", "=", "/", ",", "000", ".5", "\\left", "ft", " cm", "a ", "an ", "\\%", "^\\circ",
             "\\text{and}", "units", "\n", "\\$", "\\pi", "ways", "-", "\\ldots", "\\\\", "0.5", "\\text{ m", "\\!", "_"]
    firsts = []
    with open(os.path.join(GOLDEN, "math_forms.jsonl"), "w") as out:
        for i in range(600):
            text = "".join(draw.choice(parts) for _ in range(draw.randint(1, 4 + i // 60)))
            place = next((n for n, other in enumerate(firsts) if hendrycks.is_equiv(other, text)), len(firsts))
            if place == len(firsts):
                firsts.append(text)
            solution = f"It is {text}. Final Answer: The final answer is {text}. I hope"
            out.write(json.dumps([text, minerva.normalize_final_answer(text), place,
                                  minerva.get_unnormalized_answer(solution)], ensure_ascii=False) + "\n")


def main():
    without_missing_packages()
    importlib.import_module("lm_eval.tasks.minerva_math.utils")
    write_forms()
    with open(os.path.join(GOLDEN, "tasks.jsonl"), "w") as out:
        for name, subject, yaml_file, rows, shots, texts in cases():
            Programs.seen.clear()
            task = make_task(yaml_file, rows, shots)
            one = run(Answers(texts), name, subject, task, None, True)
            one["num_shots"] = shots
            if Programs.seen:
                one["programs"] = Programs.seen[-len(one["samples"]):]
            out.write(json.dumps(one, ensure_ascii=False) + "\n")
            print(name, subject, len(one["samples"]), flush=True)


if __name__ == "__main__":
    main()
