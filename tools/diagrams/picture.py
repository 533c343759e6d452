"""Pictures as SVG: text, boxes and arrows, readable on a phone, on light and on dark pages.

A picture is 400 units wide, about the width of a phone, and has its own background, so that it can be read whatever
colors the page has. Standard library alone.
"""
import html
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDTH = 400
SHOWN = 520  # pixels on a wide screen

# Name: (fill, line) on light pages, (fill, line) on dark pages.
COLORS = {
    "plain": (("#f6f8fa", "#afb8c1"), ("#1c232c", "#57606a")),
    "blue": (("#ddf4ff", "#0969da"), ("#12304f", "#4493f8")),
    "green": (("#dafbe1", "#1a7f37"), ("#12351f", "#3fb950")),
    "orange": (("#ffe9d6", "#bc4c00"), ("#46270f", "#f0883e")),
    "purple": (("#f3e8ff", "#8250df"), ("#33234f", "#ab7df8")),
    "none": (("none", "#afb8c1"), ("none", "#57606a")),
}


def style(dark):
    page, line, text, muted = ("#0d1117", "#3d444d", "#f0f6fc", "#a6adb5") if dark else ("#ffffff", "#d1d9e0", "#1f2328", "#59636e")
    rules = [f".page {{ fill: {page}; stroke: {line} }} text {{ fill: {text} }} .muted {{ fill: {muted} }}",
             f".arrow {{ stroke: {muted}; fill: none }} .head {{ fill: {muted} }}"]
    for name, colors in COLORS.items():
        fill, line = colors[dark]
        rules.append(f".{name} {{ fill: {fill}; stroke: {line} }} .{name}-line {{ stroke: {line}; fill: none }} "
                     f".{name}-text {{ fill: {line} }}")
    return "\n".join(rules)


class Picture:
    def __init__(self, title):
        self.title = title
        self.parts = []

    def text(self, x, y, words, size=13, kind="", anchor="start", bold=False, mono=False):
        classes = f' class="{kind}"' if kind else ""
        weight = ' font-weight="600"' if bold else ""
        family = ' font-family="monospace"' if mono else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}"{classes}{weight}{family}>'
                          f"{html.escape(words)}</text>")

    def box(self, x, y, width, height, color="plain", round=4, dashed=False):
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(f'<rect class="{color}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round:g}"{dashes}/>')

    def labeled(self, x, y, width, height, words, color="plain", size=13, bold=False, mono=False):
        """A box with one line of text in its middle."""
        self.box(x, y, width, height, color)
        self.text(x + width / 2, y + height / 2 + size * 0.35, words, size, anchor="middle", bold=bold, mono=mono)

    def line(self, points, color="arrow", head=False):
        """A polyline; `head`: with an arrow at its end, in a horizontal or vertical direction."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline class="{color if color == "arrow" else color + "-line"}" points="{path}"/>')
        if not head:
            return
        (ax, ay), (x, y) = points[-2], points[-1]
        dx, dy = (x > ax) - (x < ax), (y > ay) - (y < ay)
        left, right = (x - 7 * dx - 4 * dy, y - 7 * dy - 4 * dx), (x - 7 * dx + 4 * dy, y - 7 * dy + 4 * dx)
        self.parts.append(f'<polygon class="head" points="{x:g},{y:g} {left[0]:g},{left[1]:g} {right[0]:g},{right[1]:g}"/>')

    def save(self, path, height):
        lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{SHOWN}" '
                 f'height="{height * SHOWN / WIDTH:g}" font-family="sans-serif" role="img" aria-label="{html.escape(self.title)}">',
                 "<style>", style(dark=False), "@media (prefers-color-scheme: dark) {", style(dark=True), "}", "</style>",
                 f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:g}" rx="6"/>']
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(path).write_text("\n".join(lines + self.parts + ["</svg>", ""]))
