"""The regions of a checkpoint: a fused projection on four ranks, and the same elements in the file.

    python3 tools/diagrams/regions.py docs/diagrams/regions.svg

Rows are cut as by row_split_parameter (src/nn/shard.h), then by ZeRO into equal parts (src/parallel/shard_units.h), then
at the boundaries of pieces (src/checkpoint/regions.h).
"""
import sys

from picture import Picture

TENSORS = {"query": 4, "key": 4, "value": 4}  # rows
TENSOR_RANKS, DATA_RANKS = 2, 2
COLORS = {(0, 0): "blue", (0, 1): "green", (1, 0): "orange", (1, 1): "purple"}


def local_rows(tensor_rank):
    """[(tensor, canonical row)] of the local parameter of a tensor rank."""
    rows = []
    for name, count in TENSORS.items():
        share = count // TENSOR_RANKS
        rows += [(name, row) for row in range(tensor_rank * share, (tensor_rank + 1) * share)]
    return rows


def owners():
    """(tensor, canonical row) -> (tensor rank, data rank) that writes it."""
    found = {}
    for tensor_rank in range(TENSOR_RANKS):
        rows = local_rows(tensor_rank)
        part = len(rows) // DATA_RANKS
        for i, row in enumerate(rows):
            found[row] = (tensor_rank, i // part)
    assert len(found) == sum(TENSORS.values())
    return found


def draw(path):
    owner = owners()
    picture = Picture("Regions of a checkpoint: each rank writes its rows at their places in the file")
    picture.text(14, 26, "In memory", 13, bold=True)
    picture.text(100, 26, "one parameter of q, k and v, ZeRO-3", 12, "muted")
    top, row = 50, 24
    for tensor_rank in range(TENSOR_RANKS):
        left = 14 + 92 * tensor_rank
        picture.text(left + 40, top - 6, f"tensor {tensor_rank}", 12, "muted", "middle")
        for i, place in enumerate(local_rows(tensor_rank)):
            picture.labeled(left, top + row * i, 80, row - 2, f"{place[0]} {place[1]}", COLORS[owner[place]], 12)
    half = row * len(local_rows(0)) / DATA_RANKS
    picture.line([(8, top + half - 1), (196, top + half - 1)])
    for data in range(DATA_RANKS):
        picture.text(200, top + half * data + half / 2 + 4, f"data {data}", 12, "muted")
    x = 262
    for i, (place, color) in enumerate(sorted(COLORS.items(), key=lambda one: one[0][::-1])):
        picture.box(x, top + 12 + 26 * i, 14, 14, color, 3)
        picture.text(x + 20, top + 24 + 26 * i, f"rank {place[0] + TENSOR_RANKS * place[1]} (t{place[0]}, d{place[1]})", 12)

    y = top + row * len(local_rows(0)) + 12
    picture.line([(100, y), (100, y + 20)], head=True)
    picture.text(112, y + 14, "each rank writes its rows at their places", 12, "muted")
    y += 46
    picture.text(14, y, "In the checkpoint", 13, bold=True)
    picture.text(386, y, "no gathering", 12, "muted", "end")
    y += 10
    picture.box(14, y, 372, 66 + 54 * len(TENSORS), "none")
    picture.text(24, y + 20, "model-00001.safetensors", 12, mono=True)
    y += 30
    picture.labeled(24, y, 352, 22, "header: names, types, shapes, offsets", "plain", 12)
    y += 32
    for name, count in TENSORS.items():
        picture.text(24, y + 10, f"layers.0.attention.{name}.weight", 11, mono=True)
        wide = 352 / count
        for i in range(count):
            picture.labeled(24 + wide * i, y + 17, wide, 24, f"row {i}", COLORS[owner[(name, i)]], 12)
        y += 54
    y += 12
    regions = []
    for name, count in TENSORS.items():
        last = None
        for i in range(count):
            if owner[(name, i)] != last:
                regions.append((name, i))
            last = owner[(name, i)]
    y += 18
    for words in [f"{len(regions)} regions. A region is consecutive rows of one tensor",
                  "that one rank writes. Another layout cuts other",
                  "regions of the same tensors, and reads these files."]:
        picture.text(14, y, words, 12, "muted")
        y += 17
    picture.save(path, y)


if __name__ == "__main__":
    draw(sys.argv[1])
