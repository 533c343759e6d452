"""Losses of preferences, and their gradients of a LoRA adapter, for the small Qwen2 of tests/golden/huggingface.

  python tools/oracle/preferences.py tests/golden/preferences    (torch 2.15, transformers 5.23, peft 0.21)

The model with the adapter of tests/golden/lora/qwen2 is the policy, and without it the reference. The formulas are those of
TRL's trainers (DPOTrainer.dpo_loss, CPOTrainer.cpo_loss with simpo, ORPOTrainer.odds_ratio_loss, KTOTrainer.kto_loss), written
in PyTorch and computed in float64; the cross entropy in orpo is over the answer alone. CASE.safetensors has the gradients of
each case, under the names of adapter_model.safetensors; batch.safetensors has

  ids, labels       int32 [6, 24]: chosen and rejected of three pairs, in turns; -1 after the end, -100 without a label.
                    Of kto, texts 0, 2 and 4 are judged good, bad and good, and 1, 3 and 5 are their mismatched ones
  CASE.loss         of the batch
  CASE.figures      rewards of chosen (good) and of rejected (bad), margin, accuracy; of kto k in place of the accuracy
"""
import datetime
import importlib.metadata as metadata
import pathlib
import sys

import peft
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests/golden"
CASES = {
    "dpo": dict(stage="dpo", beta=0.1, smoothing=0.0, ftx=0.0),
    "dpo_smooth_ftx": dict(stage="dpo", beta=0.3, smoothing=0.1, ftx=0.2),
    "hinge": dict(stage="hinge", beta=0.2, ftx=0.0),
    "ipo": dict(stage="ipo", beta=0.1, ftx=0.0),
    "orpo": dict(stage="orpo", beta=0.4),
    "simpo": dict(stage="simpo", beta=2.5, ratio=1.4, smoothing=0.05),
    "dpo_ld": dict(stage="dpo", beta=0.2, smoothing=0.0, ftx=0.1, ld=0.4),
    "cpo": dict(stage="cpo", beta=0.2, ftx=0.8),
    "kto": dict(stage="kto", beta=0.1, good=1.2, bad=0.8),
}


def texts():
    """Three questions, each with two answers: a pair differs in its answers alone."""
    torch.manual_seed(5)
    ids = torch.full((6, 24), -1)
    labels = torch.full((6, 24), -1)
    for pair, (question, answers) in enumerate(((5, (7, 3)), (3, (4, 12)), (8, (10, 16)))):
        first = torch.randint(0, 131, (question,))
        for side, length in enumerate(answers):
            answer = torch.randint(0, 131, (length,))
            row = 2 * pair + side
            ids[row, :question + length] = torch.cat([first, answer])
            labels[row, :question + length] = torch.cat([torch.full((question,), -100), answer])
    return ids, labels


def log_probabilities(model, ids, labels):
    """Sums over the labeled tokens of each text, and their numbers; and sums of those beyond the shorter answer of a pair."""
    answers = (labels >= 0).sum(1)
    shared = torch.minimum(answers[0::2], answers[1::2]).repeat_interleave(2)
    sums, counts, tails = [], [], []
    for row_ids, row_labels, both in zip(ids, labels, shared):
        length = int((row_ids >= 0).sum())
        logits = model(row_ids[None, :length]).logits[0, :-1]
        wanted = row_labels[1:length]
        each = torch.log_softmax(logits, -1).gather(1, wanted.clamp(min=0)[:, None])[:, 0]
        sums.append((each * (wanted >= 0)).sum())
        counts.append((wanted >= 0).sum())
        tails.append(each[wanted >= 0][both:].sum())
    return torch.stack(sums), torch.stack(counts).double(), torch.stack(tails)


def loss_of(policy, reference, counts, case, tails=(0, 0)):
    beta, words = case["beta"], policy / counts
    if "ld" in case:
        policy, reference = policy - (1 - case["ld"]) * tails[0], reference - (1 - case["ld"]) * tails[1]
    if case["stage"] == "kto":
        ratio = policy - reference
        k = ratio[1::2].mean().clamp(min=0).detach()
        good, bad = ratio[[0, 4]], ratio[[2]]
        losses = torch.cat([case["good"] * (1 - torch.sigmoid(beta * (good - k))),
                            case["bad"] * (1 - torch.sigmoid(beta * (k - bad)))])
        rewards = beta * good.mean(), beta * bad.mean()
        return losses.mean(), [rewards[0], rewards[1], rewards[0] - rewards[1], k]
    mean = case["stage"] in ("ipo", "orpo", "simpo")
    p = policy / counts if mean else policy
    r = reference / counts if mean else reference
    chosen, rejected = p[0::2], p[1::2]
    if case["stage"] in ("orpo", "simpo", "cpo"):
        rewards = beta * chosen, beta * rejected
    else:
        rewards = beta * (chosen - r[0::2]), beta * (rejected - r[1::2])
    z = (chosen - rejected) - (r[0::2] - r[1::2])
    if case["stage"] == "dpo":
        e = case["smoothing"]
        losses = -F.logsigmoid(beta * z) * (1 - e) - F.logsigmoid(-beta * z) * e
    elif case["stage"] == "cpo":
        losses = -F.logsigmoid(beta * (chosen - rejected))
    elif case["stage"] == "hinge":
        losses = torch.relu(1 - beta * z)
    elif case["stage"] == "ipo":
        losses = (z - 1 / (2 * beta)) ** 2
    elif case["stage"] == "simpo":
        e = case["smoothing"]
        logits = chosen - rejected - case["ratio"]
        losses = -F.logsigmoid(beta * logits) * (1 - e) - F.logsigmoid(-beta * logits) * e
    else:
        odds = (chosen - rejected) - (torch.log1p(-torch.exp(chosen)) - torch.log1p(-torch.exp(rejected)))
        losses = -chosen - beta * F.logsigmoid(odds)
    losses = losses - case.get("ftx", 0) * words[0::2]
    right = (rewards[0] > rewards[1]).double()
    return losses.mean(), [rewards[0].mean(), rewards[1].mean(), (rewards[0] - rewards[1]).mean(), right.mean()]


def main(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    origin = {"format": "pt", "origin": f"tools/oracle/preferences.py, {datetime.date.today()}, " + ", ".join(
        f"{name} {metadata.version(name)}" for name in ("torch", "transformers", "peft"))}
    model = transformers.AutoModelForCausalLM.from_pretrained(TESTS / "huggingface/qwen2", dtype=torch.float32,
                                                              attn_implementation="eager")
    model = peft.PeftModel.from_pretrained(model, TESTS / "lora/qwen2", is_trainable=True).double().eval()
    ids, labels = texts()
    out = {"ids": ids.to(torch.int32), "labels": labels.to(torch.int32)}
    with torch.no_grad(), model.disable_adapter():
        reference, counts, tail = log_probabilities(model, ids, labels)
    for name, case in CASES.items():
        model.zero_grad()
        policy, _, policy_tail = log_probabilities(model, ids, labels)
        loss, figures = loss_of(policy, reference, counts, case, (policy_tail, tail))
        loss.backward()
        out[f"{name}.loss"] = loss.detach().reshape(1)
        out[f"{name}.figures"] = torch.stack([figure.detach() for figure in figures])
        gradients = {key.replace(".default", ""): parameter.grad.float().contiguous()
                     for key, parameter in model.named_parameters() if parameter.requires_grad}
        save_file(gradients, folder / f"{name}.safetensors", metadata=origin)
        print(name, loss.item(), [round(figure.item(), 6) for figure in figures])
    save_file(out, folder / "batch.safetensors", metadata=origin)


if __name__ == "__main__":
    main(sys.argv[1])
