"""Which pairs of stretches each rank of a ring computes, and in which round, for four context ranks.

    python3 tools/diagrams/context.py docs/diagrams/context.svg

Stretches are those of src/comm/sequence_stretches.h, rounds those of src/ops/context/ring_attention.cpp.
"""
import sys

from picture import Picture

RANKS = 4
COLORS = ["blue", "green", "orange", "purple"]


def owner(stretch):
    return min(stretch, 2 * RANKS - 1 - stretch)


def draw(path):
    picture = Picture("Eight stretches of a sequence on four ranks: who attends from which one to which, and in which round")
    cell, left, top, count = 36, 84, 64, 2 * RANKS
    picture.text(14, 26, "keys of stretch", 12, "muted")
    picture.text(14, top - 8, "rows of", 12, "muted")
    for stretch in range(count):
        color = COLORS[owner(stretch)]
        x, y = left + cell * stretch, top + cell * stretch
        picture.labeled(x, top - 30, cell - 4, 22, str(stretch), color, 12)
        picture.text(14, y + 21, f"{stretch}, rank {owner(stretch)}", 12)
        for key in range(stretch + 1):
            step = (owner(stretch) - owner(key)) % RANKS
            picture.labeled(left + cell * key, y, cell - 4, cell - 4, str(step + 1), color, 12, bold=key == stretch)
    y = top + cell * count + 18
    for words in [f"Colors: the rank that computes. Each has {2 * RANKS + 1} pairs of stretches.",
                  "Numbers: the round, in which keys have traveled so many ranks less one.",
                  "Bold: half of the pair is visible. Above the diagonal nothing is."]:
        picture.text(14, y, words, 12, "muted")
        y += 17
    picture.save(path, y - 4)


if __name__ == "__main__":
    draw(*sys.argv[1:])
