"""The floors of src/LAYERS as a picture, and as the table in docs/architecture.md.

    python3 tools/diagrams/layers.py docs/diagrams/layers.svg
"""
import sys

from picture import ROOT, WIDTH, Picture

BEGIN, END = "<!-- table of src/LAYERS, made by `make diagrams` -->", "<!-- end of the table -->"
SEALED = 4  # the floor of which only api names folders


def read_layers():
    """(floor, folder, contents) of each folder, as listed."""
    found = []
    for line in (ROOT / "src" / "LAYERS").read_text().splitlines():
        words, _, contents = line.partition("#")
        if not words.strip():
            continue
        floor, *folders = words.split()
        found += [(floor, folder, contents.strip()) for folder in folders]
    return found


def write_table(layers):
    page = ROOT / "docs" / "architecture.md"
    rows = ["| floor | folder | contents |", "| --- | --- | --- |"]
    rows += [f"| {floor} | `{folder}` | {contents} |" for floor, folder, contents in layers]
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    assert rest and after, f"{page} has no place for the table"
    page.write_text("\n".join([before + BEGIN, "", *rows, "", END + after]))


def draw(layers, path):
    picture = Picture("The floors of src/LAYERS: each folder includes only from lower floors")
    floors = {}
    for floor, folder, _ in layers:
        floors.setdefault(int(float(floor)), []).append((float(floor), folder))
    y = 14
    left, right, size, row = 44, WIDTH - 22, 12, 25
    top = y
    for number in sorted(floors, reverse=True):
        # Folders of one floor from its highest part down, in as many lines as they need.
        lines, x = [[]], left + 8
        for _, folder in sorted(floors[number], key=lambda one: -one[0]):
            width = 7.3 * len(folder) + 13
            if x + width > right - 8 and lines[-1]:
                lines.append([])
                x = left + 8
            lines[-1].append((x, width, folder))
            x += width + 6
        height = row * len(lines) + 9
        picture.box(left, y, right - left, height, "orange" if number == SEALED else "none", dashed=number == SEALED)
        picture.text(left - 8, y + height / 2 + 4, str(number), 13, "muted", "end", bold=True)
        for i, line in enumerate(lines):
            for x, width, folder in line:
                picture.box(x, y + 7 + row * i, width, row - 6, "blue" if number > SEALED else "plain", 3)
                picture.text(x + width / 2, y + 20 + row * i, folder, size, anchor="middle", mono=True)
        y += height + 6
    picture.line([(right + 11, top), (right + 11, y - 6)], head=True)
    y += 12
    picture.text(left, y, "A folder includes only from lower floors (arrow).", 12, "muted")
    picture.text(left, y + 17, "Only api and tests name the folders of floor 4.", 12, "orange-text")
    picture.save(path, y + 30)


if __name__ == "__main__":
    listed = read_layers()
    write_table(listed)
    draw(listed, sys.argv[1])
