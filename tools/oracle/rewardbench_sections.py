"""Scores of RewardBench's sections for random outcomes of its subsets, by the function of the package `rewardbench`.

    pip download --no-deps --no-binary :all: rewardbench==0.1.4 && tar xzf rewardbench-0.1.4.tar.gz
    python tools/oracle/rewardbench_sections.py rewardbench-0.1.4 > tests/golden/evaluation/rewardbench_sections.json

The package imports models and data sets, so only its constants and the text of calculate_scores_per_section are run. The
final score is the mean of the four sections (its leaderboard without the prior sets). In the second case a section has one
subset alone, in the third one section has none.
"""
import ast
import json
import pathlib
import random
import sys

package = pathlib.Path(sys.argv[1]) / "rewardbench"
constants, functions = {}, {}
exec((package / "constants.py").read_text(), constants)
for node in ast.parse((package / "utils.py").read_text()).body:
    if isinstance(node, ast.FunctionDef) and node.name == "calculate_scores_per_section":
        exec(compile(ast.Module([node], []), "utils", "exec"), functions)
counts, mapping = constants["EXAMPLE_COUNTS"], constants["SUBSET_MAPPING"]
random.seed(1)
cases = []
for left_out in ([], mapping["Safety"][1:], mapping["Chat"]):
    pairs = {name: [random.randint(0, 6), 6 + random.randint(0, 3)] for name in sorted(counts) if name not in left_out}
    accuracies = {name: right / total for name, (right, total) in pairs.items()}
    sections = functions["calculate_scores_per_section"](counts, mapping, accuracies)
    sections = {name: score for name, score in sections.items() if any(one in pairs for one in mapping[name])}
    case = {"pairs": pairs, "sections": {name.lower().replace(" ", "_"): score for name, score in sections.items()}}
    if len(sections) == len(mapping):
        case["score"] = sum(sections.values()) / len(sections)
    cases.append(case)
print(json.dumps({"by": "tools/oracle/rewardbench_sections.py, rewardbench 0.1.4", "cases": cases}))
