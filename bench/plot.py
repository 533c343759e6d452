"""share_of_peak of whole training steps over commits, from bench/results/*.json.

    python bench/plot.py docs/share_of_peak.svg

One line a configuration (model, dtype, batch), commits in the order of the history. Results whose "note"
says that other work disturbed them are drawn hollow. Standard library alone, and git.
"""
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
COLORS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b"]
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 760, 380, 50, 30, 60, 210


def option(command, name, default):
    found = re.search(rf"--{name}[ =](\S+)", command)
    return found.group(1) if found else default


def points():
    """(configuration, commit, share, disturbed) of every training result."""
    for path in sorted((ROOT / "bench" / "results").glob("*.json")):
        record = json.loads(path.read_text())
        command = record.get("piton_command", record["command"])
        if " bench train" not in command:
            continue
        share = record.get("piton_share_of_peak") or record.get("result", {}).get("share_of_peak")
        if not share:
            continue
        dtype = "bf16" if "--bf16" in command else "fp32"
        name = f"{option(command, 'model', '?')} {dtype} {option(command, 'micro-batch-size', '1')} x {option(command, 'seq-length', '?')}"
        yield name, record["commit"], share, "note" in record


def main(output):
    history = subprocess.run(["git", "rev-list", "--reverse", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=True).stdout.split()
    place = {commit: i for i, commit in enumerate(history)}
    all_points = [point for point in points() if point[1] in place]
    commits = sorted({point[1] for point in all_points}, key=place.get)
    names = sorted({point[0] for point in all_points})
    if not commits:
        raise SystemExit("bench/results: no training result of a commit in this history")

    def x(commit):
        return LEFT + (commits.index(commit) + 0.5) * (WIDTH - LEFT - RIGHT) / len(commits)

    def y(share):
        return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>', f'<text x="{LEFT}" y="18">share of peak of a training step</text>']
    for percent in range(0, 101, 20):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(percent / 100):.1f}" y2="{y(percent / 100):.1f}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 8}" y="{y(percent / 100) + 4:.1f}" text-anchor="end">{percent} %</text>')
    for commit in commits:
        out.append(f'<text x="{x(commit):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{commit[:7]}</text>')
    for name, color in zip(names, COLORS * len(names)):
        best = {}
        for _, commit, share, disturbed in (point for point in all_points if point[0] == name):
            if commit not in best or share > best[commit][0]:
                best[commit] = (share, disturbed)
        line = [(x(commit), y(best[commit][0]), best[commit][1]) for commit in commits if commit in best]
        out.append(f'<polyline fill="none" stroke="{color}" points="' + " ".join(f"{a:.1f},{b:.1f}" for a, b, _ in line) + '"/>')
        for a, b, disturbed in line:
            out.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" stroke="{color}" fill="{"white" if disturbed else color}"/>')
        row = TOP + 18 * (names.index(name) + 1)
        out.append(f'<text x="{WIDTH - RIGHT + 15}" y="{row}" fill="{color}">{name}</text>')
    out.append(f'<text x="{WIDTH - RIGHT + 15}" y="{TOP + 18 * (len(names) + 2)}" fill="#555">hollow: machine was not idle</text>')
    pathlib.Path(output).write_text("\n".join(out) + "\n</svg>\n")


if __name__ == "__main__":
    main(sys.argv[1])
