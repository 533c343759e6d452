"""The passes of two stages under each schedule, over time.

    python3 tools/diagrams/schedules.py docs/diagrams/schedules.svg build/piton

Passes and times are those of `piton plan --simulate --passes`: the lists that a run executes.
"""
import json
import subprocess
import sys

from picture import Picture

STAGES, MICRO_BATCHES = 2, 4
COLORS = {"forward": "blue", "backward": "green", "input backward": "green", "weight backward": "purple"}
# Title, words for plan.
SCHEDULES = [
    ("1F1B", ["1f1b"]),
    ("1F1B, unequal micro-batches (1 3 3 1)", ["1f1b", "--manual-mbs", "1", "3", "3", "1"]),
    ("ZB-H1", ["zb-h1"]),
    ("interleaved, two chunks a stage", ["interleaved"]),
    ("Fold3D, all in, all out", ["aiao"]),
    ("ZB-V", ["zb-v"]),
    ("DualPipe-V", ["dualpipe-v"]),
]


def simulated(piton, words):
    command = [piton, "plan", "--simulate", *words, "--stages", str(STAGES), "--micro-batches", str(MICRO_BATCHES), "--passes"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def draw(path, piton):
    picture = Picture("Passes of two stages under seven schedules, over time")
    y, left, wide, row = 26, 34, 352, 24
    for title, words in SCHEDULES:
        plan = simulated(piton, words)
        unit = wide / plan["time"]
        picture.text(14, y, title, 13, bold=True)
        picture.text(386, y, f"bubble {100 * plan['bubble']:.1f} %", 12, "muted", "end")
        y += 10
        for stage, passes in enumerate(plan["passes"]):
            picture.text(14, y + 16, f"s{stage}", 12, "muted")
            picture.box(left, y + 2, wide, row - 6, "none", 2, dashed=True)
            for kind, micro_batch, chunk, start, end in passes:
                upper = chunk >= STAGES
                picture.labeled(left + unit * start, y, unit * (end - start), row - 2, str(micro_batch), COLORS[kind], 11,
                                bold=upper)
            y += row
        y += 26
    y -= 8
    x = 14
    for color, words, width in [("blue", "forward", 82), ("green", "backward (of inputs)", 160), ("purple", "weight gradients", 0)]:
        picture.box(x, y - 11, 13, 13, color, 3)
        picture.text(x + 18, y, words, 12)
        x += width
    y += 20
    for words in ["s0, s1: stages. Numbers: micro-batches; bold in the second chunk of a stage.",
                  "Chunks are half as long as stages; each drawing has its own scale."]:
        picture.text(14, y, words, 12, "muted")
        y += 17
    picture.save(path, y)


if __name__ == "__main__":
    draw(sys.argv[1], sys.argv[2])
