"""Losses of GRPO and RLOO by TRL's trainers, and their gradients of a LoRA adapter, for the small Qwen2 of tests/golden/huggingface.

  python tools/oracle/policy_gradients.py tests/golden/rollouts    (torch 2.15, transformers 5.24, peft 0.21, trl 1.16)

The model with the adapter of tests/golden/lora/qwen2 is the policy, and without it the reference. Losses are what
GRPOTrainer._compute_loss or RLOOTrainer._compute_loss itself returns for given answers, in float64, summed over the micro-batches of a step; only the
log-probabilities that it asks for are computed here. CASE.safetensors has the gradients of each case, under the names of
adapter_model.safetensors; batch.safetensors has

  ids, labels          int32 [6, 24]: two questions with three answers each; -1 after the end, -100 without a label
  rewards              of the answers
  advantages.SCALE     of them: group, batch, none (the formulas of _generate_and_score_completions, with TRL's nanstd);
                       rloo, rloo_batch: those of RLOOTrainer, without and with normalize_advantages, and rloo_kl with
                       beta 0.5: the divergence from the reference is taken from the rewards
  divergence           of the answers: log(policy / reference)
  CASE.loss, CASE.kl   of the batch: the mean of the divergence over all tokens
  CASE.clipped         share of tokens, of cases with "clip": the second of two updates of the batch, of the answers to the
                       second question, which were written by the model with WRITTEN times lora_B
"""
import collections
import datetime
import importlib.metadata as metadata
import pathlib
import sys
import types

import peft
import torch
import transformers
from safetensors.torch import save_file
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.rloo_trainer import RLOOTrainer
from trl.trainer.utils import nanstd

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests/golden"
LONGEST = 16  # --max-completion-length
WRITTEN = 0.9375
CASES = {
    "grpo": dict(loss_type="grpo", beta=0.0, scale="group", micro=2),
    "dr_grpo": dict(loss_type="dr_grpo", beta=0.0, scale="none", micro=2),
    "dapo": dict(loss_type="dapo", beta=0.0, scale="group", micro=2),
    "bnpo": dict(loss_type="bnpo", beta=0.0, scale="batch", micro=2),
    "grpo_kl": dict(loss_type="grpo", beta=0.2, scale="group", micro=2),
    "dapo_kl": dict(loss_type="dapo", beta=0.5, scale="batch", micro=3),
    "dapo_clip": dict(loss_type="dapo", beta=0.3, scale="group", micro=1, clip=(0.2, 0.28)),
    "grpo_clip": dict(loss_type="grpo", beta=0.0, scale="group", micro=3, clip=(0.1, 0.1)),
    "grpo_sequence": dict(loss_type="grpo", beta=0.1, scale="group", micro=3, clip=(0.003, 0.02), level="sequence"),
    "cispo": dict(loss_type="cispo", beta=0.0, scale="group", micro=2),
    "cispo_clip": dict(loss_type="cispo", beta=0.1, scale="group", micro=3, clip=(0.2, 1.02)),
    "sapo_clip": dict(loss_type="sapo", beta=0.0, scale="batch", micro=1, clip=(0.2, 0.2)),
    "rloo": dict(loss_type="rloo", beta=0.0, scale="rloo", micro=2),
    "rloo_clip": dict(loss_type="rloo", beta=0.0, scale="rloo_batch", micro=1, clip=(0.2, 20.0)),
    "dapo_warm": dict(loss_type="dapo", beta=0.5, scale="group", micro=2, temperature=1.6),
}


def texts():
    """Two questions, each with three answers of other lengths."""
    torch.manual_seed(7)
    ids = torch.full((6, 24), -1)
    labels = torch.full((6, 24), -1)
    for group, (question, answers) in enumerate(((5, (7, 3, 1)), (8, (4, 12, 16)))):
        first = torch.randint(0, 131, (question,))
        for side, length in enumerate(answers):
            answer = torch.randint(0, 131, (length,))
            row = 3 * group + side
            ids[row, :question + length] = torch.cat([first, answer])
            labels[row, :question + length] = torch.cat([torch.full((question,), -100), answer])
    return ids, labels


def advantages_of(rewards, scale):
    grouped = rewards.view(-1, 3)
    deviation = nanstd(rewards).expand_as(rewards) if scale == "batch" else nanstd(grouped, dim=1).repeat_interleave(3)
    centered = rewards - grouped.mean(1).repeat_interleave(3)
    return centered if scale == "none" else centered / (deviation + 1e-4)


def leave_one_out(rewards, normalize):
    grouped = rewards.view(-1, 3)
    baselines = (grouped.sum(1, keepdim=True) - grouped) / (grouped.size(1) - 1)
    advantages = rewards - baselines.view(-1)
    return (advantages - advantages.mean()) / (nanstd(advantages) + 1e-4) if normalize else advantages


def token_log_probabilities(model, ids, labels, temperature=1.0):
    """[answers, tokens of the longest], 0 after the end of an answer, and the mask of them."""
    rows = []
    for row_ids, row_labels in zip(ids, labels):
        length = int((row_ids >= 0).sum())
        logits = model(row_ids[None, :length]).logits[0, :-1] / temperature
        wanted = row_labels[1:length]
        each = torch.log_softmax(logits, -1).gather(1, wanted.clamp(min=0)[:, None])[:, 0]
        rows.append(each[wanted >= 0])
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(row), dtype=torch.long) for row in rows], batch_first=True)
    return padded, mask


def trainer_of(case, batches, parts):
    below, above = case.get("clip", (0.2, 0.2))
    trainer = types.SimpleNamespace(
        aux_loss_enabled=False, top_entropy_quantile=1.0, off_policy_mask_threshold=None,
        importance_sampling_level=case.get("level", "token"),
        beta=case["beta"], args=types.SimpleNamespace(use_bias_correction_kl=False, delta=None,
                                                      steps_per_generation=batches * parts, sapo_temperature_pos=1.0,
                                                      sapo_temperature_neg=1.05),
        loss_type=case["loss_type"], epsilon_low=below, epsilon_high=above, use_vllm=False,
        vllm_importance_sampling_correction=False, model=types.SimpleNamespace(training=True),
        current_gradient_accumulation_steps=batches, max_completion_length=LONGEST, _entropy_bonus_enabled=False,
        accelerator=types.SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x),
        _metrics={"train": collections.defaultdict(list)})

    def log_probabilities(model, ids, *_, **__):
        found, _ = token_log_probabilities(model, trainer.rows, trainer.labels, case.get("temperature", 1.0))
        return found, torch.zeros_like(found), None

    trainer._get_per_token_logps_and_entropies = log_probabilities
    return trainer


def loss_of(model, ids, labels, reference, written, advantages, case):
    """Also the first answer of the update. With "clip" it is the second one of a batch."""
    total = int((labels >= 0).sum())
    first = len(ids) // 2 if "clip" in case else 0
    batches = (len(ids) - first) // case["micro"]
    trainer = trainer_of(case, batches, 2 if first else 1)
    loss = 0
    for begin in range(first, len(ids), case["micro"]):
        rows = slice(begin, begin + case["micro"])
        trainer.rows, trainer.labels = ids[rows], labels[rows]
        _, mask = token_log_probabilities(model, ids[rows], labels[rows])
        inputs = {"prompt_ids": torch.zeros(len(mask), 1, dtype=torch.long), "prompt_mask": torch.ones(len(mask), 1),
                  "completion_ids": torch.zeros_like(mask), "completion_mask": mask, "advantages": advantages[rows],
                  "num_items_in_batch": torch.tensor(float(total)),
                  "ref_per_token_logps": reference[rows, :mask.size(1)]}
        if first:
            inputs["old_per_token_logps"] = written[rows, :mask.size(1)]
        if case["loss_type"] == "rloo":
            old = written[rows, :mask.size(1)] if first else token_log_probabilities(model, ids[rows], labels[rows])[0].detach()
            inputs["old_logps"] = (old * mask).sum(1)
            loss = loss + RLOOTrainer._compute_loss(trainer, model, inputs) / batches
        else:
            loss = loss + GRPOTrainer._compute_loss(trainer, model, inputs)
    return loss, first


def main(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    origin = {"format": "pt", "origin": f"tools/oracle/policy_gradients.py, {datetime.date.today()}, " + ", ".join(
        f"{name} {metadata.version(name)}" for name in ("torch", "transformers", "peft", "trl"))}
    model = transformers.AutoModelForCausalLM.from_pretrained(TESTS / "huggingface/qwen2", dtype=torch.float32,
                                                              attn_implementation="eager")
    model = peft.PeftModel.from_pretrained(model, TESTS / "lora/qwen2", is_trainable=True).double().eval()
    ids, labels = texts()
    rewards = torch.tensor([1.0, 0.0, 0.25, 0.5, 2.0, -1.0], dtype=torch.float64)
    out = {"ids": ids.to(torch.int32), "labels": labels.to(torch.int32), "rewards": rewards}
    for scale in ("group", "batch", "none"):
        out[f"advantages.{scale}"] = advantages_of(rewards, scale)
    references = {}
    with torch.no_grad(), model.disable_adapter():
        for temperature in (1.0, 1.6):
            references[temperature], mask = token_log_probabilities(model, ids, labels, temperature)
    with torch.no_grad():
        policy, _ = token_log_probabilities(model, ids, labels)
    out["divergence"] = ((policy - references[1.0]) * mask).sum(1)
    out["advantages.rloo"] = leave_one_out(rewards, False)
    out["advantages.rloo_batch"] = leave_one_out(rewards, True)
    out["advantages.rloo_kl"] = leave_one_out(rewards - 0.5 * out["divergence"], False)
    seconds = [parameter for key, parameter in model.named_parameters() if "lora_B" in key]
    with torch.no_grad():
        kept = [parameter.clone() for parameter in seconds]
        for parameter in seconds:
            parameter.mul_(WRITTEN)
        written, _ = token_log_probabilities(model, ids, labels)
        for parameter, value in zip(seconds, kept):
            parameter.copy_(value)
    for name, case in CASES.items():
        model.zero_grad()
        temperature = case.get("temperature", 1.0)
        reference = references[temperature]
        advantages = out[f"advantages.{case['scale']}"]
        loss, first = loss_of(model, ids, labels, reference, written, advantages, case)
        loss.backward()
        with torch.no_grad():
            policy = token_log_probabilities(model, ids, labels, temperature)[0][first:]
        difference = reference[first:] - policy
        learned = mask[first:]
        out[f"{name}.loss"] = loss.detach().reshape(1)
        out[f"{name}.kl"] = ((torch.exp(difference) - difference - 1) * learned).sum().reshape(1) / learned.sum()
        if first:
            ratio = policy - written[first:]
            if case["loss_type"] == "rloo":
                ratio = (ratio * learned).sum(1, keepdim=True).expand_as(ratio)
            if case.get("level") == "sequence":
                ratio = ((ratio * learned).sum(1, keepdim=True) / learned.sum(1, keepdim=True)).expand_as(ratio)
            gain, (below, above) = advantages[first:, None], case["clip"]
            clipped = ((gain > 0) & (ratio.exp() > 1 + above)) | ((gain < 0) & (ratio.exp() < 1 - below))
            if case["loss_type"] == "cispo":
                clipped = (gain > 0) & (ratio.exp() > above)
            out[f"{name}.clipped"] = (clipped * learned).sum().reshape(1) / learned.sum()
            print(name, "clipped", out[f"{name}.clipped"].item())
        gradients = {key.replace(".default", ""): parameter.grad.float().contiguous()
                     for key, parameter in model.named_parameters() if parameter.requires_grad}
        save_file(gradients, folder / f"{name}.safetensors", metadata=origin)
        print(name, loss.item(), out[f"{name}.kl"].item())
    save_file(out, folder / "batch.safetensors", metadata=origin)


if __name__ == "__main__":
    main(sys.argv[1])
