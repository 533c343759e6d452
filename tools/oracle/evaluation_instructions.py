"""Verdicts of lm-evaluation-harness about generated answers to instructions of IFEval.

    python -m venv VENV && VENV/bin/pip install lm-eval langdetect immutabledict nltk
    VENV/bin/python tools/oracle/evaluation_instructions.py > tests/golden/evaluation/instructions.jsonl

A line a record: its instructions (those that Piton checks), an answer, whether it follows each, strictly and loosely.
Sentences are divided without trained parameters, which word counts do not depend on.
"""
import contextlib
import json
import random
import sys

import nltk
from nltk.tokenize.destructive import NLTKWordTokenizer
from nltk.tokenize.punkt import PunktSentenceTokenizer

nltk.word_tokenize = lambda text: [word for sentence in PunktSentenceTokenizer().tokenize(text)
                                   for word in NLTKWordTokenizer().tokenize(sentence)]

with contextlib.redirect_stdout(sys.stderr):  # it reports a download
    from lm_eval.tasks.ifeval import instructions_registry, utils

draw = random.Random(11)
WORDS = ["apple", "Apple", "NASA", "the", "I'M", "DON'T", "it's", "U.S.A.", "cannot", "CANNOT", "A-B", "A,B", "X/Y", "été",
         "ÉTÉ", "word,", "end.", "END.", "(NOTE)", "\"QUOTE\"", "'SO'", "'tis", "'TIS", "why?", "NO!", "a:b", "A:B", "3,5",
         "ROCK'N", "...", "WAIT...NOW", "50%", "C#", "—DASH—", "“CURLY”", "section", "Section", "GIMME", "y'all", "WE'LL",
         "they'RE", "kiwi_KIWI", "2nd", "Ωmega", "ß"]
PARTS = ["* point one", "- point two", "  * three", "**bold text**", "*light*", "* *", "****", "***", "******", "[address]",
         "[]", "[a [b]", "<<title>>", "<< >>", "<<<a>>", "P.S. more", "P.P.S more", "p. s. x", "p.p.s", "Section 1", "SECTION 2",
         "Section 3 text", "My answer is yes.", "My answer is no", "```json\n{\"a\": 1}\n```", "{\"a\": [1, 2]}", "{a}",
         "Is there anything else?", "\"Quoted whole.\"", "Write about apples", "\"", "'Apple pie", "1. item"]


def answer():
    kind = draw.random()
    if kind < 0.15:
        return draw.choice(PARTS + ["", "   ", "\n"])
    lines = []
    for _ in range(draw.randint(1, 6)):
        if draw.random() < 0.4:
            lines.append(draw.choice(PARTS))
        else:
            lines.append(" ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 9))))
    text = draw.choice(["\n", "\n\n", " ", "\n***\n", " *** "]).join(lines)
    if draw.random() < 0.1:
        text = f'"{text}"'
    if draw.random() < 0.1:
        text = text.replace(",", "")
    if draw.random() < 0.15:
        text = "Write about Apples\n" + text
    return text


def relation():
    return draw.choice(["less than", "at least"])


def some(least, most):
    return draw.randint(least, most)


ARGUMENTS = {
    "keywords:existence": lambda: {"keywords": draw.sample(["apple", "the", "nasa", "été", "a.b"], some(1, 2))},
    "keywords:frequency": lambda: {"keyword": draw.choice(["apple", "it", "o"]), "frequency": some(1, 5), "relation": relation()},
    "keywords:forbidden_words": lambda: {"forbidden_words": draw.sample(["apple", "no", "été", "u", "it"], some(1, 3))},
    "keywords:letter_frequency": lambda: {"letter": draw.choice("aeTsq"), "let_frequency": some(1, 9), "let_relation": relation()},
    "length_constraints:number_paragraphs": lambda: {"num_paragraphs": some(1, 4)},
    "length_constraints:number_words": lambda: {"num_words": some(1, 30), "relation": relation()},
    "length_constraints:nth_paragraph_first_word": lambda: (lambda n: {
        "num_paragraphs": n, "nth_paragraph": some(1, n), "first_word": draw.choice(["apple", "section", "Write", "why"])})(
            some(1, 3)),
    "detectable_content:number_placeholders": lambda: {"num_placeholders": some(1, 2)},
    "detectable_content:postscript": lambda: {"postscript_marker": draw.choice(["P.S.", "P.P.S", "Is there"])},
    "detectable_format:number_bullet_lists": lambda: {"num_bullets": some(1, 3)},
    "detectable_format:constrained_response": lambda: {},
    "detectable_format:number_highlighted_sections": lambda: {"num_highlights": some(1, 3)},
    "detectable_format:multiple_sections": lambda: {"section_spliter": draw.choice(["Section", "SECTION "]),
                                                    "num_sections": some(1, 2)},
    "detectable_format:json_format": lambda: {},
    "detectable_format:title": lambda: {},
    "combination:two_responses": lambda: {},
    "combination:repeat_prompt": lambda: {"prompt_to_repeat": "Write about apples"},
    "startend:end_checker": lambda: {"end_phrase": draw.choice(["Is there anything else?", "end.", "NO!"])},
    "startend:quotation": lambda: {},
    "change_case:capital_word_frequency": lambda: {"capital_frequency": some(1, 14), "capital_relation": relation()},
    "punctuation:no_comma": lambda: {},
}

# Changes of an answer that often make it follow the first of its instructions.
HINTS = {
    "combination:repeat_prompt": lambda text, given: draw.choice(["write About apples ", "  Write about apples"]) + text,
    "combination:two_responses": lambda text, given: text.replace("***", "") + draw.choice(["******", "\n******\n"]) + "other",
    "detectable_content:number_placeholders": lambda text, given: text + " [address] [name]",
    "detectable_content:postscript": lambda text, given: text + "\n" + draw.choice(["P.S. so", "p. p. s so", "Is there"]),
    "detectable_format:constrained_response": lambda text, given: text + " My answer is maybe.",
    "detectable_format:json_format": lambda text, given: draw.choice(["```JSON\n[1]\n```", "```{}```", "[1, 2", " true "]),
    "detectable_format:multiple_sections": lambda text, given: text + "\nSection 1\nso\nSection 2\nso\nSECTION 3 SECTION 4",
    "detectable_format:number_bullet_lists": lambda text, given: "so\n* one" + "\n- two" * some(0, 2),
    "detectable_format:number_highlighted_sections": lambda text, given: text + " *so* **and so**",
    "detectable_format:title": lambda text, given: draw.choice(["<<so>>", "<<>>>", "<< a >"]) + text,
    "keywords:existence": lambda text, given: text + " the apple NASA ÉTÉ",
    "length_constraints:nth_paragraph_first_word": lambda text, given: "\n\n".join(
        ["'\"" * some(0, 1) + draw.choice([given["first_word"], given["first_word"].upper() + "'s so"])] * given["num_paragraphs"]),
    "length_constraints:number_paragraphs": lambda text, given: "so" + draw.choice([" *** ", "***\n"]) + "and so",
    "startend:end_checker": lambda text, given: text + given["end_phrase"].upper() + draw.choice(["", " ", "\"", "\"\n"]),
    "startend:quotation": lambda text, given: f' "{text}"\n',
}

names = {name for one in ARGUMENTS.values() for name in one()}
for i in range(336):
    ids = [list(ARGUMENTS)[i % len(ARGUMENTS)]] + draw.sample(list(ARGUMENTS), some(0, 2))
    kwargs = [ARGUMENTS[one]() for one in ids]
    if draw.random() < 0.05:  # as the published file has them
        kwargs = [{**{name: None for name in names}, **one} for one in kwargs]
    text = answer()
    if ids[0] in HINTS and draw.random() < 0.6:
        text = HINTS[ids[0]](text, kwargs[0])
    record = {"key": i, "prompt": "Write about apples", "instruction_id_list": ids, "kwargs": kwargs}
    assert all(one in instructions_registry.INSTRUCTION_DICT for one in ids)
    verdicts = utils.process_results(record, [text])
    print(json.dumps({"instruction_id_list": ids, "kwargs": kwargs, "answer": text,
                      "strict": verdicts["inst_level_strict_acc"], "loose": verdicts["inst_level_loose_acc"]},
                     ensure_ascii=False))
