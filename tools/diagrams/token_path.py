"""The path of a token through two stages, and the way back of its gradient.

    python3 tools/diagrams/token_path.py docs/diagrams/token.svg
"""
import sys

from picture import ROOT, Picture

# (title, what happens, what comes out, source in src, what is sent between tensor ranks)
STEPS = [
    ("text", "piton preprocess: records, ids", "P.bin, P.idx", "data/preprocess/preprocess.h", None),
    ("sample", "s + 1 ids, in the order of the run", "[s + 1]", "data/samples/data_sets.h", None),
    ("micro-batch", "the samples of this data rank", "[b, s]", "data/samples/batch_source.h", None),
]
STAGES = [
    ("stage 0", [
        ("embedding", "rows of the table, positions", "[b s, h]", "nn/embedding.cpp", True),
        ("blocks", "attention, then MLP, each + x", "[b s, h]", "model/block.cpp", True),
    ]),
    ("stage 1", [
        ("blocks", "the rest of the layers", "[b s, h]", "model/block.cpp", True),
        ("head, loss", "slices of about 1024 rows", "[b s, V / t]", "ops/head_loss.cpp", True),
    ]),
]


def draw(path):
    picture = Picture("The path of a token: text, sample, micro-batch, embedding, blocks, head and loss, and the way back")
    left, wide, high = 24, 270, 56
    middle, back = left + 40, left + wide + 34
    y = 16

    def step(y, title, words, shape, source, sums):
        assert (ROOT / "src" / source).is_file(), f"{source} is not in src"
        picture.box(left, y, wide, high, "blue" if sums else "plain")
        picture.text(left + 10, y + 18, title, 13, bold=True)
        picture.text(left + wide - 10, y + 18, shape, 12, "muted", "end", mono=True)
        picture.text(left + 10, y + 34, words, 12)
        picture.text(left + 10, y + 49, source, 10.5, "muted", mono=True)
        if sums:
            picture.labeled(left + wide - 52, y + 27, 44, 20, "sum" if title != "head, loss" else "gather", "orange", 10)

    def down(y, length):
        picture.line([(middle, y), (middle, y + length)], head=True)

    for i, one in enumerate(STEPS):
        step(y, *one)
        y += high
        if i + 1 < len(STEPS):
            down(y, 20)
            y += 20
    down(y, 56)
    picture.text(middle + 12, y + 20, "upload, on every stage", 11.5, "muted")
    y += 32
    first = y
    for number, (name, steps) in enumerate(STAGES):
        picture.box(left - 12, y, wide + 24, 26 + len(steps) * (high + 20) - 8, "none", dashed=True)
        picture.text(left + wide, y + 17, name, 12, "muted", "end", bold=True)
        y += 24
        for i, one in enumerate(steps):
            step(y, *one)
            y += high
            if i + 1 < len(steps):
                down(y, 20)
                y += 20
        y += 12
        if number == 0:
            down(y - 12, 66)
            picture.text(middle + 12, y + 19, "send the boundary", 11.5, "muted")
            y += 30
    bottom = y - 12
    # The way back: one arrow up, to the right of the stages.
    turn = bottom - high / 2
    picture.line([(left + wide, turn), (back, turn), (back, first + 24 + high / 2), (left + wide, first + 24 + high / 2)],
                 "green", head=True)
    for i, words in enumerate(["the", "way", "back"]):
        picture.text(back + 7, (turn + first) / 2 - 6 + 16 * i, words, 12, "green-text")
    y += 20
    for words in ["Back, each block gives dx to the block before, and its",
                  "weight jobs add dW, in fp32, to the gradients.",
                  "Stage 1 sends its dx to stage 0."]:
        picture.text(14, y, words, 12, "muted")
        y += 17
    picture.box(14, y - 3, 20, 16, "orange")
    picture.text(42, y + 9, "over the tensor ranks; the head gathers only", 12, "muted")
    picture.text(42, y + 26, "three numbers a row", 12, "muted")
    picture.save(path, y + 40)


if __name__ == "__main__":
    draw(sys.argv[1])
