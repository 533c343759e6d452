"""Golden instruction data, and the samples that a run reads of it, in plain Python.

    python -m venv VENV && VENV/bin/pip install numpy
    VENV/bin/python tools/oracle/instruction_samples.py tests/golden

The three files of a prefix are written with struct. The rules are those of MindSpeed-LLM, read one by one:
orders by numpy.random.RandomState, samples by slices, packing by a search through all rows.
"""
import datetime
import os
import struct
import sys

import numpy

golden = sys.argv[1]
NO_LABEL, PAD, EOD = -100, 1, 2
lines = [f"# numpy {numpy.__version__}: python tools/oracle/instruction_samples.py tests/golden, {datetime.date.today()}",
         "# case FLAGS | SPLIT | s | seed | global batch | train valid; set NAME SIZE; then for each sample",
         "# its length, tokens, labels, positions, and segments, or - for none. pad 1, eod 2"]


def write_corpus(prefix, sequences):
    lengths = [len(one) for one in sequences]
    with open(prefix + ".bin", "wb") as file:
        for one in sequences:
            file.write(struct.pack(f"<{len(one)}i", *one))
    starts = [4 * sum(lengths[:i]) for i in range(len(lengths))]
    with open(prefix + ".idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, len(lengths), len(lengths) + 1))
        file.write(struct.pack(f"<{len(lengths)}i", *lengths))
        file.write(struct.pack(f"<{len(lengths)}q", *starts))
        file.write(struct.pack(f"<{len(lengths) + 1}q", *range(len(lengths) + 1)))


def write_data(name, samples):
    for part, at in (("input_ids", 0), ("attention_mask", 1), ("labels", 2)):
        write_corpus(os.path.join(golden, "instruction", f"{name}_packed_{part}_document"),
                     [sample[at] for sample in samples])
    return samples


def conversation(random, base, length):
    """Ids, mask, labels: turns of a question, which is not learned, and an answer with its end."""
    ids, labels = [], []
    while len(ids) < length:
        question = [int(x) for x in random.randint(base, base + 40, random.randint(1, 5))]
        answer = [int(x) for x in random.randint(base, base + 40, random.randint(1, 7))] + [EOD]
        ids += question + answer
        labels += [NO_LABEL] * len(question) + answer
    return ids[:length], [1] * length, labels[:length]


random = numpy.random.RandomState(3)
plain = write_data("plain", [conversation(random, 10 + 50 * i, int(random.randint(2, 30))) for i in range(23)])
other = write_data("other", [conversation(random, 2000 + 50 * i, int(random.randint(2, 30))) for i in range(9)])
neat_samples = []
for i in range(7):
    ids, mask, labels = [], [], []
    for text in range(int(random.randint(1, 4))):
        one = conversation(random, 3000 + 200 * i + 50 * text, int(random.randint(2, 9)))
        ids, mask, labels = ids + one[0], mask + [text + 1] * len(one[0]), labels + one[0]  # all ids are learned
    rest = 24 - len(ids)
    neat_samples.append((ids + [PAD] * rest, mask + [0] * rest, labels + [NO_LABEL] * rest))
neat = write_data("neat", neat_samples)


def order_of(first, end, wanted, seed, flags, batch):
    random, order = numpy.random.RandomState(seed), []
    while len(order) < max(wanted, 1):
        epoch = list(range(first, end))
        if "padded-samples" in flags and len(epoch) % batch:
            epoch += [first + i % (end - first) for i in range(batch - len(epoch) % batch)]
        epoch = numpy.array(epoch)
        if "no-shuffle" not in flags:
            random.shuffle(epoch)
        order += [int(x) for x in epoch]
    if "full-shuffle-instruction-dataset" in flags:
        order = numpy.array(order)
        random.shuffle(order)
        order = [int(x) for x in order]
    return order


def texts_of(sample, s, flags):
    """The texts of a sample: tokens, labels, positions of each, and how much padding follows."""
    ids, mask, labels = sample
    ids, mask, labels = ids[:-1][:s], mask[:-1][:s], labels[1:][:s]
    texts = []
    if "neat-pack" in flags:
        for number in range(1, max(mask) + 1):
            at = [i for i in range(len(ids)) if mask[i] == number]
            if not at:
                continue
            own = [labels[i] for i in at]
            following = sample[1][at[-1] + 1]
            if following != number:
                own[-1] = NO_LABEL
            texts.append(([ids[i] for i in at], own, list(range(len(at)))))
        return texts, len(ids) - sum(len(text[0]) for text in texts)
    positions, position = [], 0
    for one in ids:
        positions.append(position)
        position = 0 if "reset-position-ids" in flags and one == EOD else position + 1
    return [(ids, labels, positions)], 0


def row_of(parts, s):
    texts = [text for part in parts for text in part[0]]
    tokens = [x for text in texts for x in text[0]]
    labels = [x for text in texts for x in text[1]]
    positions = [x for text in texts for x in text[2]]
    segments = [i for i, text in enumerate(texts) for _ in text[0]]
    stored = parts[0][1] if len(parts) == 1 else 0  # padding of the files has separate positions
    length, rest = len(tokens), s - len(tokens)
    positions += list(range(stored)) + list(range(rest - stored))
    return (length, tokens + [PAD] * rest, labels + [NO_LABEL] * rest, positions, segments + [-1] * rest)


def pack(samples, numbers, s):
    """Best fit decreasing. Rows of sample numbers."""
    rows, room = [], []
    length = {n: min(len(samples[n][0]) - 1, s) for n in numbers}
    for n in sorted(numbers, key=lambda n: -length[n]):
        best = None
        for row in range(len(rows)):
            if room[row][0] >= length[n] and (best is None or room[row] < room[best]):
                best = row
        if best is None:
            rows.append([])
            room.append((s, 0))
            best = len(rows) - 1
        rows[best].append(n)
        pack.clock += 1
        room[best] = (room[best][0] - length[n], pack.clock)  # of equal room, the one that has it longest
    return rows


pack.clock = 0


def packed_rows(samples, first, end, wanted, seed, flags, s):
    random, rows = numpy.random.RandomState(seed), []
    while len(rows) < max(wanted, 1):
        numbers = numpy.arange(first, end)
        if "no-shuffle" not in flags:
            random.shuffle(numbers)
        epoch = pack(samples, [int(x) for x in numbers], s)
        if "no-shuffle" in flags:
            epoch = sorted(sorted(row) for row in epoch)
        else:
            at = numpy.arange(len(epoch))
            random.shuffle(at)
            epoch = [epoch[i] for i in at]
        rows += epoch
    if "full-shuffle-instruction-dataset" in flags:
        at = numpy.arange(len(rows))
        random.shuffle(at)
        rows = [rows[i] for i in at]
    return rows


def write_case(name, samples, split, s, seed, batch, wanted, *flags):
    lines.append(f"case {name} {' '.join(flags)} | {split} | {s} | {seed} | {batch} | {wanted[0]} {wanted[1]}")
    shares = [float(x) for x in split.split(",")]
    bounds = [round(sum(shares[:i]) / sum(shares) * len(samples)) for i in range(4)]
    for i, set_name in enumerate(("train", "valid")):
        first, end = bounds[i], bounds[i + 1]
        if "pack" in flags:
            rows = packed_rows(samples, first, end, wanted[i], seed, flags, s)
        else:
            rows = [[n] for n in order_of(first, end, wanted[i], seed, flags, batch)]
        lines.append(f"set {set_name} {len(rows)}")
        for row in rows:
            row = row_of([texts_of(samples[n], s, flags) for n in row], s)
            lines.append(str(row[0]))
            for values in row[1:4]:
                lines.append(" ".join(map(str, values)))
            one = "pack" not in flags and all(x == 0 for x in row[4])
            lines.append("-" if one else " ".join(map(str, row[4])))


write_case("plain", plain, "70,30,0", 16, 1234, 4, (40, 9))
write_case("plain", plain, "70,30,0", 8, 7, 4, (20, 9), "no-shuffle")
write_case("plain", plain, "70,30,0", 16, 1234, 4, (40, 9), "full-shuffle-instruction-dataset")
write_case("plain", plain, "70,30,0", 16, 1234, 5, (40, 9), "padded-samples")
write_case("plain", plain, "70,30,0", 30, 5, 4, (16, 4), "reset-position-ids")
write_case("neat", neat, "60,40,0", 23, 11, 1, (8, 3), "neat-pack")
write_case("neat", neat, "60,40,0", 12, 11, 1, (8, 3), "neat-pack")
write_case("plain", plain, "70,30,0", 40, 1234, 1, (20, 3), "pack")
write_case("plain", plain, "70,30,0", 40, 1234, 1, (20, 3), "pack", "no-shuffle")
write_case("plain", plain, "70,30,0", 24, 9, 1, (30, 3), "pack", "full-shuffle-instruction-dataset")
open(os.path.join(golden, "instruction_samples.txt"), "w").write("\n".join(lines) + "\n")
