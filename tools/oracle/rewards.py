"""Rewards of the small Qwen2 of tests/golden/huggingface with a head of one label, and their gradients.

  python tools/oracle/rewards.py golden tests/golden/rewards       (torch 2.15, transformers 5.23, peft 0.21)
  python tools/oracle/rewards.py compare FOLDER IDS.json REWARDS.json [ADAPTER]

`golden` writes qwen2: the Qwen2ForSequenceClassification as Transformers saves it, and computed in float64

  expected.safetensors   ids int32 [6, 24] (-1 after the end): chosen and rejected of three pairs, in turns; `rewards` [6];
                         `loss` of TRL's RewardTrainer with a margin of 0.1 and centering by 0.01; `figures`: mean reward of
                         the chosen and of the rejected, margin, accuracy; `adapted` [6]: rewards with the adapter
  gradients.safetensors  of the loss, under the names of the model

and qwen2_lora: an adapter of it as PEFT saves it (SEQ_CLS). `compare` holds the rewards that `piton score --reward --json
--ids-file IDS.json` has printed against those of a folder, and of an adapter over it.
"""
import datetime
import importlib.metadata as metadata
import json
import pathlib
import shutil
import sys

import peft
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests/golden"
MARGIN, CENTERING = 0.1, 0.01


def rewards_of(model, rows):
    """Each text alone: its last token is not found by a padding id."""
    return torch.stack([model(torch.tensor([row])).logits[0, 0] for row in rows])


def golden(folder):
    base, adapter = folder / "qwen2", folder / "qwen2_lora"
    for out in (base, adapter):
        shutil.rmtree(out, ignore_errors=True)
    torch.manual_seed(9)
    load = transformers.Qwen2ForSequenceClassification.from_pretrained
    model = load(TESTS / "huggingface/qwen2", num_labels=1, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        model.score.weight.copy_(0.3 * torch.randn(model.score.weight.shape))
    model.save_pretrained(base)
    ids = load_file(TESTS / "preferences/batch.safetensors")["ids"]
    rows = [[int(one) for one in row if one >= 0] for row in ids]
    model = load(base, dtype=torch.float32, attn_implementation="eager").double().eval()
    rewards = rewards_of(model, rows)
    chosen, rejected = rewards[0::2], rewards[1::2]
    # TRL 1.x, RewardTrainer.compute_loss.
    loss = -F.logsigmoid(chosen - rejected - MARGIN).mean() + CENTERING * torch.mean((chosen + rejected) ** 2)
    loss.backward()
    gradients = {name: one.grad.float().contiguous() for name, one in model.named_parameters()}
    figures = torch.stack([chosen.mean(), rejected.mean(), (chosen - rejected).mean(),
                           (chosen > rejected).double().mean()]).detach()
    adapted = peft.get_peft_model(load(base, dtype=torch.float32, attn_implementation="eager"), peft.LoraConfig(
        r=4, lora_alpha=6, task_type="SEQ_CLS", target_modules=["q_proj", "v_proj", "down_proj"]))
    with torch.no_grad():
        for name, one in adapted.named_parameters():
            if "lora_B" in name:
                one.copy_(0.1 * torch.randn(one.shape))
            elif "modules_to_save" in name:
                one.add_(0.2 * torch.randn(one.shape))
    adapted.save_pretrained(adapter)
    (adapter / "README.md").unlink(missing_ok=True)
    config = json.loads((adapter / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "tests/golden/rewards/qwen2"
    (adapter / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    with torch.no_grad():
        with_adapter = rewards_of(adapted.double().eval(), rows)
    origin = {"format": "pt", "origin": f"tools/oracle/rewards.py, {datetime.date.today()}, " + ", ".join(
        f"{name} {metadata.version(name)}" for name in ("torch", "transformers", "peft"))}
    save_file(gradients, base / "gradients.safetensors", metadata=origin)
    save_file({"ids": ids, "rewards": rewards.detach(), "loss": loss.detach().reshape(1), "figures": figures,
               "adapted": with_adapter}, base / "expected.safetensors", metadata=origin)


def compare(folder, ids, rewards, adapter=None):
    load = transformers.AutoModelForSequenceClassification.from_pretrained
    more = dict(num_labels=1) if adapter else {}
    model = load(folder, dtype=torch.float32, **more)
    if adapter:
        model = peft.PeftModel.from_pretrained(model, adapter)
    with torch.no_grad():
        theirs = rewards_of(model.eval(), json.loads(pathlib.Path(ids).read_text()))
    ours = torch.tensor(json.loads(pathlib.Path(rewards).read_text())["rewards"])
    worst = float((ours - theirs).abs().max())
    print(f"{folder} {adapter or ''}: largest distance {worst:.2e}, rewards {theirs.tolist()}")
    return worst < 2e-5 * (1 + float(theirs.abs().max()))


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    if command == "golden":
        golden(pathlib.Path(rest[0]))
    elif not compare(*rest):
        sys.exit(1)
