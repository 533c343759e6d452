"""Losses of single pairs of answers and their derivatives, by TRL's own code, for tests/golden/preferences/pairs.txt.

  python tools/oracle/pair_losses.py tests/golden/preferences/pairs.txt    (torch 2.15, trl 1.16)

DPOTrainer._compute_loss gets a model that returns log-probabilities of tokens, and CPOTrainer.cpo_loss their sums (with the
cross entropy of the chosen answer, a mean over its tokens, times cpo_alpha, as CPOTrainer adds it for batches of one pair).
In float64, but for the alpha-divergence, which TRL computes in float32. Each line:

  CASE  p_c r_c n_c  p_j r_j n_j  t_c u_c t_j u_j  loss  d_c d_j e_c e_j

sums of log-probabilities of the model and of the reference, and numbers of tokens, of the chosen and of the rejected answer;
t and u: the parts of p and r of the tokens beyond the length of the shorter answer; derivatives of the loss by the
log-probability of the first token of each answer, and of the last one.
"""
import datetime
import importlib.metadata as metadata
import pathlib
import sys
import types
from unittest import mock

import torch
from trl.experimental.cpo import CPOTrainer
from trl.trainer.dpo_trainer import DPOTrainer

DPO = dict(loss="sigmoid", beta=0.1, smoothing=0.0, divergence="reverse_kl", coefficient=0.5, ld_alpha=None, tau=0.05)
CASES = {
    "sigmoid": {}, "hinge": dict(loss="hinge", beta=0.4), "ipo": dict(loss="ipo", beta=0.3),
    "sigmoid_norm": dict(loss="sigmoid_norm", beta=2.0), "robust": dict(loss="robust", smoothing=0.1),
    "exo_pair": dict(loss="exo_pair", smoothing=1e-3, beta=0.5), "nca_pair": dict(loss="nca_pair"),
    "bco_pair": dict(loss="bco_pair"), "sppo_hard": dict(loss="sppo_hard", beta=0.2),
    "apo_zero": dict(loss="apo_zero"), "apo_down": dict(loss="apo_down", beta=0.3),
    "discopop": dict(loss="discopop", beta=0.05, tau=0.05),
    "forward_kl": dict(divergence="forward_kl"), "js": dict(divergence="js_divergence", loss="robust", smoothing=0.2),
    "alpha": dict(divergence="alpha_divergence", coefficient=0.3), "alpha_one": dict(divergence="alpha_divergence", coefficient=1.0),
    "js_ipo": dict(divergence="js_divergence", loss="ipo"), "ld": dict(ld_alpha=0.4), "ld_nca": dict(ld_alpha=0.0, loss="nca_pair"),
}
CPO = {"cpo": dict(loss="sigmoid", beta=0.1, smoothing=0.1, alpha=1.0), "cpo_hinge": dict(loss="hinge", beta=0.05, smoothing=0, alpha=0.5),
       "cpo_ipo": dict(loss="ipo", beta=0.3, smoothing=0, alpha=0.0)}
LENGTHS = ((4, 7), (5, 3))  # of chosen and rejected


class Anything(mock.MagicMock):
    """Of the trainer, what only reports."""


def dpo(policy, reference, mask, case):
    accelerator = types.SimpleNamespace(device="cpu", gather_for_metrics=lambda x: x, gather=lambda x: x)
    zeros = torch.zeros_like(policy)
    outputs = lambda values: types.SimpleNamespace(log_probs=values, entropy=zeros, mean_logits=zeros, is_top1=mask.bool())
    trainer = Anything()
    trainer.configure_mock(
        accelerator=accelerator, aux_loss_enabled=False, ld_alpha=case["ld_alpha"], precompute_ref_logps=False,
        ref_model=lambda **_: outputs(reference), f_divergence_type=case["divergence"], f_alpha_divergence_coef=case["coefficient"],
        loss_types=[case["loss"]], loss_weights=[1.0], beta=case["beta"], label_smoothing=case["smoothing"], use_weighting=False,
        _total_train_tokens=0, _tp_size=1)
    trainer.args.discopop_tau = case["tau"]
    trainer.args.gradient_checkpointing_kwargs = None
    trainer.model = types.SimpleNamespace(training=True, is_gradient_checkpointing=False)
    question = torch.zeros_like(mask[:, :1])
    inputs = {"completion_mask": torch.cat([question, mask], 1), "input_ids": torch.ones(2, mask.size(1) + 1, dtype=torch.long),
              "attention_mask": torch.ones(2, mask.size(1) + 1)}
    with mock.patch("trl.trainer.dpo_trainer.is_peft_model", lambda _: False):
        return DPOTrainer._compute_loss(trainer, lambda **_: outputs(policy), inputs, False)


def cpo(policy, mask, case):
    sums = (policy * mask).sum(1)
    if case["loss"] == "ipo":
        sums = sums / mask.sum(1)
    trainer = types.SimpleNamespace(alpha=0.0, beta=case["beta"], label_smoothing=case["smoothing"], loss_type=case["loss"],
                                    accelerator=types.SimpleNamespace(device="cpu"))
    losses, _, _ = CPOTrainer.cpo_loss(trainer, sums[:1], sums[1:])
    return losses.mean() + case["alpha"] * -(policy[0] * mask[0]).sum() / mask[0].sum()


def line(name, lengths, dtype, loss_of):
    torch.manual_seed(len(name))
    width = max(lengths)
    mask = torch.tensor([[float(i < length) for i in range(width)] for length in lengths], dtype=dtype)
    reference = -torch.rand(2, width, dtype=torch.float64) * 3
    policy = reference + torch.randn(2, width, dtype=torch.float64) * 0.8
    reference = (reference * mask).to(dtype)
    policy = (policy * mask).to(dtype).requires_grad_()
    loss = loss_of(policy, reference, mask)
    loss.backward()
    numbers = []
    for side in range(2):
        numbers += [policy[side].sum().item(), reference[side].sum().item(), lengths[side]]
    shared = min(lengths)
    for side in range(2):
        numbers += [policy[side, shared:].sum().item(), reference[side, shared:].sum().item()]
    numbers.append(loss.item())
    numbers += [policy.grad[side, 0].item() for side in range(2)]
    numbers += [policy.grad[side, lengths[side] - 1].item() for side in range(2)]
    return " ".join([name, *(repr(number) for number in numbers)])


def main():
    lines = []
    for lengths in LENGTHS:
        for name, case in CASES.items():
            case = {**DPO, **case}
            dtype = torch.float32 if name == "alpha" else torch.float64
            lines.append(line(name, lengths, dtype, lambda p, r, mask: dpo(p, r, mask.to(p.dtype), case)))
        for name, case in CPO.items():
            lines.append(line(name, lengths, torch.float64, lambda p, r, mask: cpo(p, mask, case)))
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "trl"))
    head = f"# tools/oracle/pair_losses.py, {datetime.date.today()}, {versions}\n"
    pathlib.Path(sys.argv[1]).write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
