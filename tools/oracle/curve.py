"""The loss curve of PyTorch compared with Piton's, from the same weights over the same samples.

  piton pretrain ... --train-iters 1 --lr 1e-30 --save init         initial weights, unchanged
  piton inspect samples ... --train-iters 300 --count 1200 --json > samples.jsonl
  piton pretrain ... --train-iters 300 --lr 1.5e-4 --lr-warmup-iters 30 --lr-decay-style constant --save run
  python tools/oracle/curve.py train init/iter_0000001 samples.jsonl torch.jsonl
  python tools/oracle/curve.py compare run/metrics.jsonl torch.jsonl docs/curves/NAME

`train` is Transformers' GPT-2 under torch.autocast to bf16 with fp32 weights: AdamW with decay 0.01 on
matrices alone, gradients clipped to norm 1, the learning rate of Megatron's schedule.
`compare` smooths both (a mean over the last 20 steps), prints the largest distance, and writes NAME.csv
and NAME.svg. Wants torch, transformers and safetensors; `compare` only the standard library.
"""
import json
import pathlib
import sys

STEPS, BATCH, WARMUP, RATE, WINDOW = 300, 4, 30, 1.5e-4, 20


def load_model(folder):
    import torch
    from safetensors.torch import load_file
    from transformers import GPT2Config, GPT2LMHeadModel

    weights = {}
    for file in sorted(pathlib.Path(folder).glob("model-*.safetensors")):
        weights.update(load_file(file))
    model = GPT2LMHeadModel(GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False))
    used = set()

    def get(name):
        used.add(name)
        return weights[name].float()

    with torch.no_grad():
        body = model.transformer
        body.wte.weight.copy_(get("embedding.token.weight"))
        body.wpe.weight.copy_(get("embedding.position.weight"))
        for i, block in enumerate(body.h):
            at = f"layers.{i}."
            for ours, theirs in (("attention_norm", block.ln_1), ("mlp_norm", block.ln_2)):
                theirs.weight.copy_(get(at + ours + ".weight"))
                theirs.bias.copy_(get(at + ours + ".bias"))
            parts = [at + f"attention.{part}" for part in ("query", "key", "value")]
            block.attn.c_attn.weight.copy_(torch.cat([get(p + ".weight") for p in parts]).T)
            block.attn.c_attn.bias.copy_(torch.cat([get(p + ".bias") for p in parts]))
            for ours, theirs in (("attention.output", block.attn.c_proj), ("mlp.up", block.mlp.c_fc),
                                 ("mlp.down", block.mlp.c_proj)):
                theirs.weight.copy_(get(at + ours + ".weight").T)
                theirs.bias.copy_(get(at + ours + ".bias"))
        body.ln_f.weight.copy_(get("final_norm.weight"))
        body.ln_f.bias.copy_(get("final_norm.bias"))
    missing = set(weights) - used
    if missing:
        raise SystemExit(f"{folder}: tensors that GPT-2 does not know: {sorted(missing)}")
    return model


def rate(step):  # Megatron's warm-up counts the samples before the step
    return RATE * min(step, WARMUP) / WARMUP


def train(folder, samples, output):
    import torch

    lines = [json.loads(line) for line in open(samples)][: STEPS * BATCH]
    if len(lines) < STEPS * BATCH:
        raise SystemExit(f"{samples}: {len(lines)} samples, wanted {STEPS * BATCH}")
    ids = torch.tensor([line["ids"] for line in lines])
    labels = torch.tensor([line["labels"] for line in lines])
    model = load_model(folder)
    model.train()
    decay = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}],
                                  lr=RATE, betas=(0.9, 0.999), eps=1e-8, fused=True)
    with open(output, "w") as file:
        for step in range(STEPS):
            for group in optimizer.param_groups:
                group["lr"] = rate(step)
            rows = slice(step * BATCH, (step + 1) * BATCH)
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(input_ids=ids[rows]).logits
            loss = torch.nn.functional.cross_entropy(logits.float().reshape(-1, logits.shape[-1]), labels[rows].reshape(-1))
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
            optimizer.step()
            optimizer.zero_grad()
            line = {"iteration": step + 1, "lm_loss": loss.item(), "grad_norm": norm, "learning_rate": rate(step),
                    "torch": torch.__version__}
            file.write(json.dumps(line) + "\n")
            file.flush()


def smoothed(losses):
    return [sum(losses[max(0, i + 1 - WINDOW): i + 1]) / min(i + 1, WINDOW) for i in range(len(losses))]


def svg(curves, title):
    width, height, left, top = 720, 360, 50, 30
    values = [value for _, _, curve in curves for value in curve]
    low, high = min(values), max(values)

    def x(i):
        return left + i * (width - left - 10) / (len(curves[0][2]) - 1)

    def y(value):
        return top + (high - value) * (height - top - 30) / (high - low)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>', f'<text x="{left}" y="18">{title}</text>']
    for level in range(int(low) + 1, int(high) + 1):
        out.append(f'<line x1="{left}" x2="{width - 10}" y1="{y(level):.1f}" y2="{y(level):.1f}" stroke="#ddd"/>'
                   f'<text x="{left - 20}" y="{y(level) + 4:.1f}">{level}</text>')
    for i in range(0, len(curves[0][2]) + 1, 50):
        out.append(f'<text x="{x(max(i - 1, 0)):.1f}" y="{height - 10}" text-anchor="middle">{max(i, 1)}</text>')
    for k, (name, color, curve) in enumerate(curves):
        points = " ".join(f"{x(i):.1f},{y(value):.2f}" for i, value in enumerate(curve))
        dash = ' stroke-dasharray="5 4"' if k else ""
        out.append(f'<polyline fill="none" stroke="{color}" stroke-width="1.5"{dash} points="{points}"/>')
        out.append(f'<text x="{width - 190}" y="{top + 20 + 18 * k}" fill="{color}">{name}</text>')
    return "\n".join(out) + "\n</svg>\n"


def compare(ours, theirs, output):
    a = [json.loads(line) for line in open(ours)]
    b = [json.loads(line) for line in open(theirs)]
    if len(a) != len(b):
        raise SystemExit(f"{ours} has {len(a)} steps, {theirs} has {len(b)}")
    for one, other in zip(a, b):
        if abs(one["learning_rate"] - other["learning_rate"]) > 1e-9:
            raise SystemExit(f"iteration {one['iteration']}: learning rates {one['learning_rate']} and {other['learning_rate']}")
    first, second = [one["lm_loss"] for one in a], [one["lm_loss"] for one in b]
    first_smooth, second_smooth = smoothed(first), smoothed(second)
    worst = max(range(len(a)), key=lambda i: abs(first_smooth[i] - second_smooth[i]))
    print(f"largest distance of the smoothed curves: {abs(first_smooth[worst] - second_smooth[worst]):.4f} nats "
          f"at step {worst + 1}; last: piton {first_smooth[-1]:.4f}, PyTorch {second_smooth[-1]:.4f}")
    path = pathlib.Path(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_suffix(".csv"), "w") as file:
        file.write("iteration,piton,pytorch,piton_smoothed,pytorch_smoothed\n")
        for i, row in enumerate(zip(first, second, first_smooth, second_smooth)):
            file.write(f"{i + 1}," + ",".join(f"{value:.5f}" for value in row) + "\n")
    curves = [("piton bf16", "#1f77b4", first_smooth), (f"PyTorch {b[0]['torch']} autocast", "#d62728", second_smooth)]
    path.with_suffix(".svg").write_text(svg(curves, f"GPT-2 124M, 4 x 256, loss in nats, mean over {WINDOW} steps"))


if __name__ == "__main__":
    {"train": train, "compare": compare}[sys.argv[1]](*sys.argv[2:])
