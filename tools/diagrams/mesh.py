"""A mesh of 16 ranks and the groups of one of them, by the formula of src/comm/mesh.h.

    python3 tools/diagrams/mesh.py docs/diagrams/mesh.svg
"""
import itertools
import sys

from picture import Picture

AXES = ["tensor", "context", "expert", "data", "pipeline"]  # the fastest first, as enum Axis
SIZES = [2, 2, 1, 2, 2]
SHOWN_RANK = 1
GROUPS = {"tensor": "orange", "context": "green", "data": "purple", "pipeline": "blue"}


def rank_at(place):
    rank, stride = 0, 1
    for coordinate, size in zip(place, SIZES):
        rank += stride * coordinate
        stride *= size
    return rank


PLACES = {rank_at(place): place for place in itertools.product(*[range(size) for size in SIZES])}


def group(axes):
    """The ranks whose coordinates differ from those of SHOWN_RANK only along `axes`."""
    own = PLACES[SHOWN_RANK]
    return sorted(rank for rank, place in PLACES.items()
                  if all(a == b or axis in axes for axis, a, b in zip(AXES, place, own)))


def color_of(rank):
    for axis, color in GROUPS.items():
        if rank in group({axis}):
            return color
    return "plain"


def draw(path):
    picture = Picture("A mesh of 16 ranks: tensor 2, context 2, expert 1, data 2, pipeline 2, and the groups of rank 1")
    picture.text(20, 26, " x ".join(f"{axis} {size}" for axis, size in zip(AXES, SIZES)), 12)
    picture.text(20, 44, "rank = t + T (c + C (e + E (d + D p)))", 12, "muted", mono=True)
    y = 58
    for pipeline in range(SIZES[4]):
        picture.box(20, y, 360, 138, "none")
        picture.text(30, y + 18, f"pipeline {pipeline}", 13, bold=True)
        picture.text(112, y + 18, f"stage {pipeline}: its part of the layers", 12, "muted")
        for data in range(SIZES[3]):
            left = 34 + 172 * data
            picture.box(left, y + 28, 160, 100, "none", dashed=True)
            picture.text(left + 8, y + 44, f"data {data}", 12, "muted")
            for tensor in range(SIZES[0]):
                picture.text(left + 88 + 42 * tensor, y + 44, f"t{tensor}", 11, "muted", "middle")
            for context in range(SIZES[1]):
                picture.text(left + 8, y + 67 + 36 * context, f"context {context}", 11, "muted")
                for tensor in range(SIZES[0]):
                    rank = rank_at((tensor, context, 0, data, pipeline))
                    own = rank == SHOWN_RANK
                    picture.labeled(left + 69 + 42 * tensor, y + 50 + 36 * context, 38, 30, str(rank),
                                    "plain" if own else color_of(rank), 14, own)
                    if own:
                        picture.box(left + 66 + 42 * tensor, y + 47 + 36 * context, 44, 36, "none", 6)
        if pipeline == 0:
            picture.line([(200, y + 138), (200, y + 156)], head=True)
            picture.text(208, y + 152, "activations", 11, "muted")
        y += 158
    y += 2
    picture.text(20, y, f"The groups of rank {SHOWN_RANK}", 13, bold=True)
    notes = {"tensor": "the other part of each matrix", "context": "the other part of each sample",
             "data": "other samples", "pipeline": "the other layers"}
    for axis, color in GROUPS.items():
        y += 22
        picture.box(20, y - 12, 14, 14, color, 3)
        ranks = ", ".join(str(rank) for rank in group({axis}))
        picture.text(42, y, f"{axis} {{{ranks}}}: {notes[axis]}", 12)
    y += 24
    ranks = ", ".join(str(rank) for rank in group({"context", "expert", "data"}))
    picture.text(20, y, f"context x expert x data {{{ranks}}}: sums the gradients", 12)
    picture.text(20, y + 17, "of a weight that is split over the tensor axis", 12)
    picture.save(path, y + 32)


if __name__ == "__main__":
    draw(sys.argv[1])
