"""One training step over time: the passes of two schedules, then the parts of the step on one rank.

    python3 tools/diagrams/step.py docs/diagrams/step.svg [build/piton]

The schedules are those of src/parallel/schedule.cpp, timed as by src/parallel/simulate.cpp. With the path of the
program the times are compared with those of `piton plan --simulate`.
"""
import json
import subprocess
import sys

from picture import Picture

STAGES, MICRO_BATCHES = 4, 4
NAMES = {"1f1b": "1F1B", "zb-h1": "ZB-H1"}
FORWARD, BACKWARD, INPUT, WEIGHT = "F", "B", "I", "W"
TIMES = {FORWARD: 1, BACKWARD: 2, INPUT: 1, WEIGHT: 1}
COLORS = {FORWARD: "blue", BACKWARD: "green", INPUT: "green", WEIGHT: "purple"}


def passes(kind, stage):
    """[(pass, micro-batch)] of a stage, in order."""
    warm_up = min(STAGES - stage - 1, MICRO_BATCHES)
    steps = [(FORWARD, m) for m in range(warm_up)]
    for m in range(MICRO_BATCHES):
        if warm_up + m < MICRO_BATCHES:
            steps.append((FORWARD, warm_up + m))
        if kind == "1f1b":
            steps.append((BACKWARD, m))
            continue
        steps.append((INPUT, m))
        if m >= stage:
            steps.append((WEIGHT, m - stage))
    if kind == "zb-h1":
        steps += [(WEIGHT, m) for m in range(max(0, MICRO_BATCHES - stage), MICRO_BATCHES)]
    return steps


def timed(kind):
    """[stage][(pass, micro-batch, start)]: each pass starts when its input is there and its stage is free."""
    lists = [passes(kind, stage) for stage in range(STAGES)]
    done, clock, found = {}, [0] * STAGES, [[] for _ in range(STAGES)]
    while any(len(one) < len(steps) for one, steps in zip(found, lists)):
        moved = False
        for stage in range(STAGES):
            while len(found[stage]) < len(lists[stage]):
                what, m = lists[stage][len(found[stage])]
                needs = None
                if what == FORWARD and stage > 0:
                    needs = (FORWARD, m, stage - 1)
                elif what in (BACKWARD, INPUT) and stage < STAGES - 1:
                    needs = ("gradient", m, stage + 1)
                if needs and needs not in done:
                    break
                start = max(clock[stage], done.get(needs, 0))
                clock[stage] = start + TIMES[what]
                done[(FORWARD if what == FORWARD else "gradient" if what != WEIGHT else WEIGHT, m, stage)] = clock[stage]
                found[stage].append((what, m, start))
                moved = True
        assert moved, f"{kind} waits for itself"
    return found, max(clock)


def compare(piton, kind, time):
    out = subprocess.run([piton, "plan", "--simulate", kind, "--stages", str(STAGES), "--micro-batches",
                          str(MICRO_BATCHES), "--json"], check=True, capture_output=True, text=True).stdout
    wanted = json.loads(out)["time"]
    assert time == wanted, f"{kind}: got {time} units, piton plan has {wanted}"


def draw(path, piton):
    picture = Picture("One training step over time: passes of four stages under two schedules, then reductions and update")
    y, left, unit, row = 26, 34, 16.6, 24
    work = 3 * MICRO_BATCHES
    for kind, name in NAMES.items():
        stages, time = timed(kind)
        if piton:
            compare(piton, kind, time)
        picture.text(14, y, name, 13, bold=True)
        picture.text(386, y, f"{time} units, {time - work} of them idle", 12, "muted", "end")
        y += 10
        for stage, steps in enumerate(stages):
            picture.text(14, y + 16, f"s{stage}", 12, "muted")
            picture.box(left, y + 2, unit * time, row - 6, "none", 2, dashed=True)
            for what, m, start in steps:
                picture.labeled(left + unit * start, y, unit * TIMES[what], row - 2, str(m), COLORS[what], 12)
            y += row
        y += 28
    y -= 12
    x = 14
    for color, words, width in [("blue", "forward", 82), ("green", "backward (of inputs)", 160), ("purple", "weight gradients", 0)]:
        picture.box(x, y - 11, 13, 13, color, 3)
        picture.text(x + 18, y, words, 12)
        x += width
    y += 20
    for words in ["s0 to s3: stages. Numbers: micro-batches.", "Under 1F1B a backward includes the weight gradients."]:
        picture.text(14, y, words, 12, "muted")
        y += 17

    y += 18
    picture.text(14, y, "The end of a step on one rank", 13, bold=True)
    picture.text(386, y, "not to scale", 12, "muted", "end")
    y += 14
    picture.text(14, y + 10, "compute", 12, "muted")
    # Backward of the last micro-batch, layer by layer: each sum starts when its unit has all contributions.
    top, bottom = y + 16, y + 66
    picture.text(14, bottom + 41, "communication", 12, "muted")
    x, wide = 14, 40
    for layer in range(3, -1, -1):
        picture.labeled(x, top, wide, 24, f"L{layer}", "green", 12)
        picture.line([(x + wide, top + 24), (x + wide, bottom)], head=True)
        picture.labeled(x + wide, bottom, wide - 2, 24, f"sum {layer}", "orange", 10)
        x += wide
    x += wide + 4
    picture.line([(x - 6, bottom + 12), (x + 21, bottom + 12), (x + 21, top + 24)], head=True)
    for words, width in [("norm", 42), ("update", 58)]:
        picture.labeled(x, top, width, 24, words, "plain", 12)
        x += width
    picture.line([(x - 14, top + 24), (x - 14, bottom)], head=True)
    picture.labeled(x - 14, bottom, 66, 24, "gather", "orange", 12)
    y = bottom + 66
    for words in ["Sums over ranks run while backward continues.", "Only the norm waits for all of them."]:
        picture.text(14, y, words, 12, "muted")
        y += 17
    picture.save(path, y)


if __name__ == "__main__":
    draw(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
