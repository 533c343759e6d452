"""Advantages, losses and gradients of PPO by TRL's PPOTrainer, for the small Qwen2 models of the other golden files.

  pip download trl==0.11.4 --no-deps && unzip trl-0.11.4-py3-none-any.whl -d TRL
  python tools/oracle/ppo.py TRL tests/golden/ppo                     (torch 2.15, transformers 5.24, peft 0.21)

0.11 is the last version of TRL with that trainer's formulas in functions; the package does not import with this version of
Transformers, so they are taken out of its files: compute_rewards, compute_advantages and loss, with what they call. The
policy is tests/golden/huggingface/qwen2 with the adapter of tests/golden/lora/qwen2, the reference the same without it, the
critic the reward model tests/golden/rewards/qwen2. Texts and rewards are those of tests/golden/rollouts/batch.safetensors.
All is float64. expected.safetensors has, of all tokens of all answers one after another,

  advantages.CASE, returns.CASE    for the settings of CASES; whitened rewards behind the end of an answer are 0, as in
                                   later versions of TRL: in 0.11 what is there gets into the advantages before it
  divergence                       log(policy / reference)

and of two updates of the batch with the first settings, each by SGD with RATES (policy and critic apart):

  policy_loss, value_loss          [2]: the second ones without the weight of the loss
  policy_clipped, value_clipped    [2]: shares of tokens

policy.safetensors and critic.safetensors have the gradients of the second update: of the adapter under the names of
adapter_model.safetensors, and of the critic under those of model.safetensors, with the weight of its loss.
"""
import ast
import datetime
import importlib.metadata as metadata
import pathlib
import sys
import types
import typing
import warnings

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests/golden"
USUAL = dict(kl_coef=0.05, gamma=1.0, lam=0.95, whiten_rewards=False)
CASES = {"usual": USUAL, "other": dict(kl_coef=0.3, gamma=0.9, lam=0.7, whiten_rewards=True)}
LOSSES = dict(cliprange=0.2, cliprange_value=0.2, vf_coef=0.1, ratio_threshold=1e9)
RATES = (0.0005, 0.1)


def functions_of(trl):
    """The methods of PPOTrainer, and the functions of core.py that they call."""
    space = {"torch": torch, "warnings": warnings, **vars(typing)}
    core = ast.parse((trl / "trl/core.py").read_text())
    kept = [node for node in core.body if isinstance(node, ast.FunctionDef) and node.name in (
        "masked_mean", "masked_var", "masked_whiten", "clip_by_value", "entropy_from_logits", "flatten_dict")]
    trainer = ast.parse((trl / "trl/trainer/ppo_trainer.py").read_text())
    methods = [node for one in trainer.body if isinstance(one, ast.ClassDef) and one.name == "PPOTrainer"
               for node in one.body if isinstance(node, ast.FunctionDef) and node.name in (
                   "compute_rewards", "_kl_penalty", "compute_advantages", "loss")]
    for node in kept + methods:
        node.decorator_list = []  # timers of PPOTrainer
    exec(compile(ast.Module(kept + methods, []), str(trl), "exec"), space)
    return space


def tokens_of(ids, labels, numbers):
    """`numbers` gives a number of each token of a text: of answers, [answers, longest answer], and the mask."""
    rows = []
    for row_ids, row_labels in zip(ids, labels):
        length = int((row_ids >= 0).sum())
        wanted = row_labels[1:length]
        rows.append(numbers(row_ids[None, :length], wanted)[wanted >= 0])
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(row), dtype=torch.float64) for row in rows], batch_first=True)
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), mask


def main(trl, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    origin = {"format": "pt", "origin": f"tools/oracle/ppo.py, {datetime.date.today()}, trl 0.11.4, " + ", ".join(
        f"{name} {metadata.version(name)}" for name in ("torch", "transformers", "peft"))}
    space = functions_of(pathlib.Path(trl))
    policy = transformers.AutoModelForCausalLM.from_pretrained(TESTS / "huggingface/qwen2", dtype=torch.float32,
                                                               attn_implementation="eager")
    policy = peft.PeftModel.from_pretrained(policy, TESTS / "lora/qwen2", is_trainable=True).double().eval()
    critic = transformers.AutoModelForSequenceClassification.from_pretrained(
        TESTS / "rewards/qwen2", dtype=torch.float32, attn_implementation="eager").double().eval()
    batch = load_file(TESTS / "rollouts/batch.safetensors")
    ids, labels, rewards = batch["ids"].long(), batch["labels"].long(), batch["rewards"]

    def log_probabilities(text, wanted):
        logits = policy(text).logits[0, :-1]
        return torch.log_softmax(logits, -1).gather(1, wanted.clamp(min=0)[:, None])[:, 0]

    def values(text, wanted):
        return critic.score(critic.model(text).last_hidden_state)[0, :-1, 0]

    out = {}
    with torch.no_grad():
        written, mask = tokens_of(ids, labels, log_probabilities)
        valued, _ = tokens_of(ids, labels, values)
        with policy.disable_adapter():
            reference, _ = tokens_of(ids, labels, log_probabilities)
    trainer = types.SimpleNamespace()
    trainer._kl_penalty = lambda *pair: space["_kl_penalty"](trainer, *pair)
    for name, case in CASES.items():
        trainer.kl_ctl = types.SimpleNamespace(value=case["kl_coef"])
        trainer.config = types.SimpleNamespace(kl_penalty="kl", **case, **LOSSES)
        of_tokens, _, divergence = space["compute_rewards"](trainer, rewards, written, reference, mask)
        if trainer.config.whiten_rewards:
            of_tokens = space["masked_whiten"](of_tokens, mask, shift_mean=False) * mask
            trainer.config.whiten_rewards = False
        _, advantages, returns = space["compute_advantages"](trainer, valued, of_tokens, mask)
        out[f"advantages.{name}"], out[f"returns.{name}"] = advantages[mask > 0], returns[mask > 0]
        out["divergence"] = divergence[mask > 0]
        if name == "usual":
            learned, wanted = advantages, returns
    figures = {"policy_loss": [], "value_loss": [], "policy_clipped": [], "value_clipped": []}
    trained = [{key: one for key, one in model.named_parameters() if one.requires_grad} for model in (policy, critic)]
    for update in range(2):
        now, _ = tokens_of(ids, labels, log_probabilities)
        predicted, _ = tokens_of(ids, labels, values)
        losses = space["loss"](trainer, written, valued, torch.zeros(*mask.shape, 2), predicted, now, mask, learned, wanted)
        gradients = [torch.autograd.grad(loss, list(each.values())) for loss, each in zip(losses, trained)]
        figures["policy_loss"].append(losses[0].item())
        figures["value_loss"].append(losses[1].item() / LOSSES["vf_coef"])
        figures["policy_clipped"].append(losses[2]["policy/clipfrac"].item())
        figures["value_clipped"].append(losses[2]["val/clipfrac"].item())
        with torch.no_grad():
            for rate, each, found in zip(RATES, trained, gradients):
                for parameter, gradient in zip(each.values(), found):
                    parameter -= rate * gradient
    print(figures)
    out.update({key: torch.tensor(value, dtype=torch.float64) for key, value in figures.items()})
    save_file({key: value.contiguous() for key, value in out.items()}, folder / "expected.safetensors", metadata=origin)
    for name, each, found in zip(("policy", "critic"), trained, gradients):
        save_file({key.replace(".default", ""): gradient.float().contiguous() for key, gradient in zip(each, found)},
                  folder / f"{name}.safetensors", metadata=origin)


if __name__ == "__main__":
    main(*sys.argv[1:])
