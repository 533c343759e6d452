"""LoRA adapters of PEFT for the small models of tests/golden/huggingface, and what PEFT computes with them.

  python tools/oracle/lora.py golden tests/golden/lora [NAME ...]   (torch 2.15, transformers 5.23, peft 0.21, safetensors)
  python tools/oracle/lora.py loraplus tests/golden/lora            (loraplus.txt, of the cases that `golden` wrote)
  python tools/oracle/lora.py compare build/lora_written            (folders that unit_adapters writes)

`golden` writes a folder for each case: adapter_config.json and adapter_model.safetensors as PEFT saves them, and
expected.safetensors, computed in float64: `tokens` (int32), `logits` of the model with the adapter, `loss`, the mean over
the tokens that follow another, and the `losses` and `norms` of ten steps of torch.optim.AdamW (matrices decay, the rest
does not; gradients clipped to norm 1) on the batches `batches`. gradients.safetensors has the gradients of `loss` under the
names of adapter_model.safetensors. B is drawn at random, so that no gradient is 0. The cases of QLoRA, nf4 and nf4_dora,
are computed in float32 by bitsandbytes (0.50.2) on the CPU, over the model nf4_base, which `golden` writes too: its sizes
are multiples of the 64 weights that have one scale. `loraplus` writes a line for each case: name, ratio, then the losses
and norms of the ten steps by create_loraplus_optimizer, without weight decay. `compare` loads each folder NAME-* of a case that
Piton has written into PEFT and holds the logits against those of the case.
"""
import contextlib
import datetime
import importlib.metadata as metadata
import json
import pathlib
import shutil
import sys
import unittest.mock

import peft
import torch
import transformers
from float64 import in_float64
from peft.optimizers import create_loraplus_optimizer
from peft.utils import transformers_weight_conversion
from safetensors.torch import load_file, save_file

MODELS = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/huggingface"
GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/lora"
# Targets are lists: PEFT stores the modules of "all-linear" in no fixed order.
CASES = {
    "llama": dict(target_modules=["q_proj", "v_proj", "down_proj"], modules_to_save=["lm_head", "model.norm"]),
    "qwen2": dict(target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
                  use_rslora=True, rank_pattern={"v_proj": 2}, alpha_pattern={"layers.1.mlp.up_proj": 5}),
    "gpt2": dict(target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True),
    "bloom": dict(target_modules=["query_key_value", "dense_h_to_4h"]),
    "phi3": dict(target_modules=["qkv_proj", "gate_up_proj", "o_proj"], layers_to_transform=[1]),
    "gpt2_dora": dict(target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True, use_dora=True),
    "qwen2_dora": dict(target_modules=["q_proj", "v_proj", "o_proj", "up_proj", "down_proj"], use_dora=True,
                       modules_to_save=["model.norm"]),
    # The head is the table of the embedding; both names are in the file.
    "qwen2_tied": dict(target_modules=["q_proj"], modules_to_save=["embed_tokens"], ensure_weight_tying=True),
    # The gated delta rule, whose matrices are next to each other in the one family, and interleaved by heads of keys in
    # the other; attention with a gate, interleaved with the query by heads.
    "qwen3.5": dict(target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "in_proj_qkv", "in_proj_z", "in_proj_b",
                                    "in_proj_a", "out_proj", "gate_proj", "down_proj"], modules_to_save=["model.norm"]),
    "qwen3-next": dict(target_modules=["q_proj", "v_proj", "o_proj", "in_proj_qkvz", "in_proj_ba", "out_proj"],
                       use_rslora=True, rank_pattern={"in_proj_ba": 2}, alpha_pattern={"layers.1.linear_attn.out_proj": 5}),
    "qwen3.5_dora": dict(target_modules=["q_proj", "v_proj", "in_proj_qkv", "in_proj_b", "in_proj_a", "out_proj"],
                         use_dora=True),
    "qwen3-next_dora": dict(target_modules=["q_proj", "o_proj", "in_proj_qkvz", "in_proj_ba"], use_dora=True),
    # Mamba-2, whose in_proj is five matrices one after another; gate and up of the MLP are one module.
    "granite4-mamba": dict(target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "in_proj", "out_proj", "input_linear",
                                           "output_linear"],
                           rank_pattern={"in_proj": 3}, alpha_pattern={"layers.2.mamba.out_proj": 5}),
    "granite4-mamba_dora": dict(target_modules=["q_proj", "in_proj", "out_proj", "input_linear"], use_dora=True,
                                modules_to_save=["model.norm"]),
    # Each letter of the pattern is a layer. PEFT refuses out_proj here.
    "nemotron-h": dict(target_modules=["q_proj", "v_proj", "o_proj", "in_proj", "up_proj", "down_proj"], use_rslora=True,
                       rank_pattern={"in_proj": 2}),
    "nemotron-h-moe": dict(target_modules=["k_proj", "in_proj", "shared_experts.up_proj"],
                           target_parameters=["experts.up_proj", "experts.down_proj"]),
    # Short convolutions, whose in_proj is three matrices one after another; out_proj is theirs, and that of attention.
    "lfm2": dict(target_modules=["q_proj", "k_proj", "v_proj", "in_proj", "out_proj", "w1", "w2", "w3"],
                 rank_pattern={"in_proj": 3}, alpha_pattern={"layers.2.conv.out_proj": 5}),
    "lfm2_dora": dict(target_modules=["q_proj", "in_proj", "out_proj", "w1"], use_dora=True, modules_to_save=["embedding_norm"]),
    # Latent attention without and with small rows of queries; experts as modules, as Transformers 4 has them, and as
    # parameters, as 5 has them; MLPs next to experts and in other layers.
    "deepseek-v2": dict(target_modules=["q_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj", "gate_proj", "up_proj",
                                        "down_proj"], modules_to_save=["kv_a_layernorm"]),
    "deepseek-v3": dict(target_modules=["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "gate_proj", "up_proj",
                                        "down_proj"], target_parameters=["experts.gate_up_proj", "experts.down_proj"],
                        use_rslora=True, rank_pattern={"kv_a_proj_with_mqa": 2, "experts.gate_up_proj": 3}),
    "deepseek-v3_dora": dict(target_modules=["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj", "up_proj",
                                             "down_proj"], use_dora=True),
    "mixtral": dict(target_modules=["q_proj", "w1", "w2", "w3"], alpha_pattern={"w2": 5}),
    "qwen2-moe": dict(target_modules=["v_proj", "shared_expert.gate_proj", "shared_expert.down_proj"],
                      target_parameters=["mlp.experts.down_proj"]),
    "gpt-oss": dict(target_modules=["q_proj"], target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]),
    "nf4": dict(target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]),
    "nf4_dora": dict(target_modules=["q_proj", "v_proj", "o_proj", "up_proj", "down_proj"], use_dora=True),
}
# The modules of an expert in Transformers 4, in the cases whose experts are modules: gate, up, down.
EXPERT_MODULES = {"deepseek-v2": ("gate_proj", "up_proj", "down_proj"), "mixtral": ("w1", "w3", "w2")}
NF4_BASE = GOLDEN / "nf4_base"


def is_quantized(case):
    return case.startswith("nf4")


def base_folder(case):
    return NF4_BASE if is_quantized(case) else MODELS / case.removesuffix("_dora").removesuffix("_tied")


def rounds_to_nearest(weight):
    """Whether bitsandbytes' code for the CPU rounds each scale to the nearest of the 256 values; not where two are nearly
    as far."""
    import bitsandbytes  # the other cases do without

    _, state = bitsandbytes.functional.quantize_4bit(weight, blocksize=64, compress_statistics=True, quant_type="nf4")
    scales = weight.reshape(-1, 64).abs().amax(1) - state.offset
    each = [(block / block.abs().max())[:, None] - state.state2.code[None] for block in scales.split(256)]
    return torch.equal(torch.cat(each).abs().argmin(1), state.absmax.long())


def write_nf4_base():
    config = transformers.LlamaConfig(vocab_size=131, hidden_size=64, intermediate_size=128, num_hidden_layers=1,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
                                      tie_word_embeddings=True, initializer_range=0.2, dtype="float32")
    for seed in range(5, 100):
        torch.manual_seed(seed)
        model = transformers.LlamaForCausalLM(config)
        if all(rounds_to_nearest(one.detach()) for name, one in model.named_parameters() if "proj" in name):
            break
    model.save_pretrained(NF4_BASE)
    (NF4_BASE / "generation_config.json").unlink(missing_ok=True)


def base(name):
    more = {}
    if is_quantized(name):
        more = dict(device_map="cpu", quantization_config=transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.float32))
    model = transformers.AutoModelForCausalLM.from_pretrained(base_folder(name), dtype=torch.float32,
                                                              attn_implementation="eager", experts_implementation="eager",
                                                              **more)
    for module in model.modules() if name in EXPERT_MODULES else ():
        if hasattr(getattr(module, "experts", None), "gate_up_proj"):
            module.experts = ExpertModules(module.experts, EXPERT_MODULES[name])
    return model.eval()


class ExpertModules(torch.nn.ModuleList):
    """Experts as modules, each with three linears."""

    def __init__(self, experts, names):
        super().__init__()
        self.names, self.activations = names, (experts.act_fn,)  # which is no expert
        for gate_up, down in zip(experts.gate_up_proj.detach(), experts.down_proj.detach()):
            expert = torch.nn.Module()
            for name, weight in zip(names, (*gate_up.chunk(2), down)):
                linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
                linear.weight.data = weight.clone()
                setattr(expert, name, linear)
            self.append(expert)

    def forward(self, x, choices, weights):
        y = torch.zeros_like(x)
        for number, expert in enumerate(self):
            tokens, which = torch.where(choices == number)
            gate, up, down = (getattr(expert, name) for name in self.names)
            rows = down(self.activations[0](gate(x[tokens])) * up(x[tokens]))
            y.index_add_(0, tokens, rows * weights[tokens, which, None])
        return y


FLOAT32_FAMILIES = {"qwen3.5": ("qwen3_5",), "qwen3-next": ("qwen3_next",), "deepseek-v2": ("deepseek_v2",),
                    "deepseek-v3": ("deepseek_v3",), "mixtral": ("mixtral",), "qwen2-moe": ("qwen2_moe",),
                    "gpt-oss": ("gpt_oss",), "granite4-mamba": ("granitemoehybrid",), "lfm2": ("lfm2",),
                    "nemotron-h": ("nemotron_h",), "nemotron-h-moe": ("nemotron_h",)}


def exactly(name):
    """Models compute norms, the gated delta rule and the router in float32, whatever the type of the weights. The norms of
    heads of small models divide by small numbers, and the router chooses, so here too all is float64."""
    return in_float64(*FLOAT32_FAMILIES.get(name.split("_")[0], ()))


def exact(name, model):
    # In eval() bitsandbytes multiplies on the CPU by an operator that has no gradient.
    return model.train() if is_quantized(name) else model.double()


# Draws all that is trained: PEFT's own start changes nothing.
def drawn(model):
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "lora_magnitude_vector" in key:
                parameter.mul_(1 + 0.2 * torch.randn(parameter.shape))
            elif "lora_" in key:
                parameter.copy_((0.3 if "lora_A" in key else 0.1) * torch.randn(parameter.shape))
            elif parameter.requires_grad:
                parameter.add_(0.02 * torch.randn(parameter.shape))
    return model


@contextlib.contextmanager
def as_named():
    """PEFT 0.21 takes modules of these names for experts alone, where Transformers 5 has experts as parameters, and leaves
    out the MLPs next to them. Here names mean what they are."""
    with unittest.mock.patch.object(transformers_weight_conversion, "_MOE_TARGET_MODULE_MAPPING", {}):
        yield


def adapted(name):
    torch.manual_seed(3)
    config = peft.LoraConfig(r=4, lora_alpha=6, task_type="CAUSAL_LM", **CASES[name])
    with as_named():
        return drawn(peft.get_peft_model(base(name), config))


def loss_of(model, batch):
    logits = model(batch[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def saved_name(key, case=""):
    name = key.replace(".default", "").replace(".modules_to_save", "")
    if case == "mixtral":
        name = name.replace(".mlp.", ".block_sparse_moe.")
    return name.replace("lora_magnitude_vector.weight", "lora_magnitude_vector")


def steps(model, batches, make_optimizer=None):
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = make_optimizer(model) if make_optimizer else torch.optim.AdamW([{"params": [p for p in trained if p.ndim > 1], "weight_decay": 0.1},
                                   {"params": [p for p in trained if p.ndim == 1], "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(trained, 1.0)))
        losses.append(float(loss.detach()))
        optimizer.step()
    return torch.tensor(losses, dtype=torch.float64), torch.tensor(norms, dtype=torch.float64)


def golden(folder, names):
    origin = {"format": "pt", "origin": f"tools/oracle/lora.py golden, {datetime.date.today()}, " + ", ".join(
        f"{name} {metadata.version(name)}" for name in ("torch", "transformers", "peft"))}
    if not names or any(is_quantized(name) for name in names):
        write_nf4_base()
    for name in names or CASES:
        out = pathlib.Path(folder) / name
        shutil.rmtree(out, ignore_errors=True)
        model = adapted(name)
        model.save_pretrained(out)
        (out / "README.md").unlink(missing_ok=True)
        config = json.loads((out / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = str(base_folder(name).relative_to(GOLDEN.parents[2]))
        (out / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        weights = load_file(out / "adapter_model.safetensors")
        save_file({saved_name(key, name): value for key, value in weights.items()}, out / "adapter_model.safetensors",
                  metadata={"format": "pt"})
        saved = {saved_name(key, name) for key in weights}
        model = exact(name, model)
        tokens = torch.arange(3, 43)[None] * 7 % 131
        if not is_quantized(name):
            tokens = load_file(base_folder(name) / "expected.safetensors")["tokens"].long()[None]
        with exactly(name):
            with torch.no_grad():
                logits = model(tokens).logits[0]
            loss = loss_of(model, tokens)
            loss.backward()
        gradients = {saved_name(key, name): parameter.grad.float().contiguous()
                     for key, parameter in model.named_parameters() if parameter.requires_grad}
        tied = {"base_model.model.lm_head.weight"} if CASES[name].get("ensure_weight_tying") else set()
        assert set(gradients) == saved - tied, set(gradients) ^ saved
        save_file(gradients, out / "gradients.safetensors", metadata=origin)
        torch.manual_seed(11)
        batches = torch.randint(0, model.config.vocab_size, (10, 2, 25))
        with exactly(name):
            losses, norms = steps(model, batches)
        save_file({"tokens": tokens[0].to(torch.int32), "logits": logits.float().contiguous(),
                   "loss": loss.detach().reshape(1), "batches": batches.to(torch.int32), "losses": losses,
                   "norms": norms}, out / "expected.safetensors", metadata=origin)


def loraplus(folder, ratio=16):
    def make_optimizer(model):
        return create_loraplus_optimizer(model, torch.optim.AdamW, lr=1e-3, loraplus_lr_ratio=ratio,
                                         betas=(0.9, 0.95), eps=1e-8)
    lines = [f"# tools/oracle/lora.py loraplus, peft {metadata.version('peft')}, torch {torch.__version__}"]
    for name in ("llama", "gpt2", "qwen2_dora"):
        batches = load_file(pathlib.Path(folder) / name / "expected.safetensors")["batches"].long()
        losses, norms = steps(exact(name, adapted(name)), batches, make_optimizer)
        lines.append(" ".join([name, str(ratio)] + [f"{float(one):.12g}" for one in (*losses, *norms)]))
    (pathlib.Path(folder) / "loraplus.txt").write_text("\n".join(lines) + "\n")


def compare(folder):
    good = True
    for written in sorted(pathlib.Path(folder).iterdir()):
        name = written.name.rsplit("-", 1)[0]
        if name not in CASES:  # of labels
            continue
        expected = load_file(GOLDEN / name / "expected.safetensors")
        EXPERT_MODULES.pop(name, None)  # Piton writes them as parameters
        # PEFT has no lengths of parameters, so folders of DoRA name modules.
        with as_named() if name.endswith("_dora") else contextlib.nullcontext():
            model = exact(name, peft.PeftModel.from_pretrained(base(name), written).eval())
        with torch.no_grad(), exactly(name):
            logits = model(expected["tokens"].long()[None]).logits[0]
        worst = float((logits - expected["logits"]).abs().max())
        good &= worst < 2e-5
        print(f"{'ok  ' if worst < 2e-5 else 'BAD '} {written.name:24} logits {worst:.2e}, largest "
              f"{float(logits.abs().max()):.1f}", flush=True)
    return good


if __name__ == "__main__":
    command, folder, *names = sys.argv[1:]
    if command == "golden":
        golden(folder, names)
    elif command == "loraplus":
        loraplus(folder)
    elif not compare(folder):
        sys.exit(1)
