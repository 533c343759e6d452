#!/usr/bin/env python3
"""Which answers in mathematical notation are equal, by lm-evaluation-harness.

  pip install lm_eval==0.4.13
  python tools/oracle/evaluation_math.py

Writes tests/golden/evaluation/math_answers.jsonl: for each text of a list its place among the texts that are equal
to it, by is_equiv() of lm_eval's AGIEval.
"""

import json
import os
import random

from lm_eval.tasks.agieval.utils import is_equiv

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/golden/evaluation")
WRITTEN = [
    "7", "The answer is 7", "The answer is 7.", "So $x = 7$.", "x = 7", "x=7.", r"\boxed{7}", r"\boxed{x = 7}", r"$7$",
    r"It is \boxed{\frac{1}{2}} or \boxed{7}", r"\boxed{7", r"\boxed 7", r"\fbox{7}", "$$", "$ $", "no number", "",
    "0.5", ".5", "$.5$", "1/2", "$1/2$", r"$\frac12$", r"$\frac{1}{2}$", r"$\dfrac{1}{2}$", r"$\tfrac1{2}$", r"$\frac1{2}$",
    r"$\frac{1}2$", r"$\frac$", r"$\frac1$", r"$\frac34x$", r"$\sqrt3$", r"$\sqrt{3}$", r"$\sqrt$", r"$2\sqrt 3$",
    r"$45^\circ$", r"$45^{\circ}$", "$45$", r"$12\text{ cm}$", "$12$", r"$1\text{ a}\text{ b}$", r"$50\%$", "$50$", r"$\$5$",
    r"$\left(1, 2\right)$", "$(1,2)$", r"$(1,\!2)$", "$ab = 3$", "$abc = 3$", "y = 3", "$k=3$", "3", "-3", "$-3/4$", "-3/4",
    "$03/4$", "3.14", "3.14159", "12a 5", "5", "1 2 3", "3 = 4 = 5", r"x = 5\nnext", "$5$ and $6$", "$6$", "答案是7", "é=7",
    r"$\frac½3$", r"$\frac{½}{3}$", r"$\sqrt½$", r"$\sqrt{½}$", "$1/2/3$", "$a/b$", "$-0/1$", "$0/1$", "$+1/2$", "$x = .5$",
    "$5 .5$", "$5 0.5$", "a\n$5$\nb $6$", "$a\nb$ 5", "$\\\\frac12$",
]


def main():
    draw = random.Random(5)
    pieces = ["$", "=", "1", "2", "/", ".", " ", r"\frac", r"\sqrt", "{", "}", r"\boxed{", "x", r"\text{ ", r"\left", "-", "é"]
    texts = WRITTEN + ["".join(draw.choice(pieces) for _ in range(draw.randint(1, 9))) for _ in range(300)]
    texts = list(dict.fromkeys(texts))
    with open(os.path.join(GOLDEN, "math_answers.jsonl"), "w") as out:
        firsts = []
        for text in texts:
            same = next((i for i, first in enumerate(firsts) if is_equiv(text, first)), None)
            if same is None:
                same = len(firsts)
                firsts.append(text)
            out.write(json.dumps([text, same], ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
