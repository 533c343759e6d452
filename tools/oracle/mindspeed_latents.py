"""Latent attention in the files of MindSpeed-LLM, read by `piton convert`.

  python tools/oracle/mindspeed_latents.py build/piton [--work DIR]                        (torch 2.15, transformers 5.23)
  python tools/oracle/mindspeed_latents.py --golden tests/golden/megatron/mindspeed

DeepSeek models of Transformers are written as MindSpeed-LLM's converters write them (convert_ckpt_deepseek2.py and _deepseek3.py,
mindspeed_llm/tasks/checkpoint/convert_hf2mg.py), in every form: names of 2024 and of 2025, with and without --mla-mm-split,
experts by themselves (local), in two matrices (--moe-grouped-gemm), divided among tensor ranks too (--moe-tp-extend-ep), with the
words of both years for the arguments, and without arguments. `piton convert` makes the tensors and the logits of Transformers of
each, and of what it writes itself (--transformer-impl mindspeed) the bytes of this script.

The layer that predicts later tokens is not in Transformers; its tensors are random here.
"""
import argparse
import itertools
import json
import pathlib
import shutil
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

import convert as oracle

ROOT = pathlib.Path(__file__).parents[2]
COMMON = dict(vocab_size=64, hidden_size=16, intermediate_size=24, moe_intermediate_size=8, num_hidden_layers=4, num_attention_heads=4,
              num_key_value_heads=4, n_shared_experts=1, n_routed_experts=4, kv_lora_rank=8, qk_nope_head_dim=6, qk_rope_head_dim=4,
              v_head_dim=5, num_experts_per_tok=2, first_k_dense_replace=1, max_position_embeddings=64, rms_norm_eps=1e-6,
              rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 32, "beta_slow": 1, "mscale": 0.7,
                               "mscale_all_dim": 0.9, "original_max_position_embeddings": 16})


class Form:
    def __init__(self, tensor=1, pipeline=1, expert=1, new=True, split=False, experts="local", extend=False, arguments=True):
        self.tensor, self.pipeline, self.expert = tensor, pipeline, expert
        self.new, self.split, self.experts, self.extend, self.arguments = new, split, experts, extend, arguments

    def name(self):
        words = [f"{self.tensor}x{self.pipeline}x{self.expert}", "new" if self.new else "old", self.experts]
        return "-".join(words + ["split"] * self.split + ["extend"] * self.extend + ["bare"] * (not self.arguments))


def rank_name(form, t, p, e):
    return (f"mp_rank_{t:02}" + (f"_{p:03}" if form.pipeline > 1 else "") + (f"_{e:03}" if form.expert > 1 else ""))


def by_heads(matrix, heads, first):
    """The first rows of each head, and the others."""
    parts = matrix.reshape(heads, -1, matrix.shape[1])
    return parts[:, :first].reshape(-1, matrix.shape[1]), parts[:, first:].reshape(-1, matrix.shape[1])


class Writer:
    def __init__(self, weights, config, form):
        self.weights, self.config, self.form = weights, config, form
        self.files = {}

    def put(self, p, name, parts):
        """`parts`: a tensor of all ranks, or one of each tensor rank."""
        form = self.form
        for t, e in itertools.product(range(form.tensor), range(form.expert)):
            part = parts[t] if isinstance(parts, (list, tuple)) else parts
            self.files.setdefault((t, p, e), {})[name] = part.contiguous().clone()

    def rows(self, matrix):
        return matrix.chunk(self.form.tensor, 0)

    def columns(self, matrix):
        return matrix.chunk(self.form.tensor, 1)

    def gated(self, at):
        gate, up = (self.rows(self.weights[f"{at}.{name}_proj.weight"]) for name in ("gate", "up"))
        return [torch.cat(both) for both in zip(gate, up)]

    def attention(self, p, at, to):
        config, form = self.config, self.form
        heads, own = config["num_attention_heads"], config["qk_nope_head_dim"]
        small = config.get("q_lora_rank") is not None
        queries = self.weights[f"{at}.q_a_proj.weight" if small else f"{at}.q_proj.weight"]
        self.put(p, f"{to}.linear_qkv.weight", torch.cat([queries, self.weights[f"{at}.kv_a_proj_with_mqa.weight"]]))
        self.put(p, f"{to}.linear_proj.weight", self.columns(self.weights[f"{at}.o_proj.weight"]))
        self.put(p, f"{to}.{'kv' if form.new else 'k'}_layernorm.weight", self.weights[f"{at}.kv_a_layernorm.weight"])
        if small:
            self.put(p, f"{to}.q_layernorm.weight", self.weights[f"{at}.q_a_layernorm.weight"])
        pairs = [("q_b_proj", "linear_qk_nope", "linear_qk_rope", "linear_q_up_proj" if form.new else "linear_qb"),
                 ("kv_b_proj", "linear_kv_nope", "linear_v", "linear_kv_up_proj" if form.new else "linear_kvb")]
        for name, first, second, both in pairs[0 if small else 1:]:
            matrix = self.weights[f"{at}.{name}.weight"]
            if form.split:
                for part, matrix in zip((first, second), by_heads(matrix, heads, own)):
                    self.put(p, f"{to}.{part}.weight", self.rows(matrix))
            else:
                self.put(p, f"{to}.{both}.weight", self.rows(matrix))

    def experts(self, p, at, to):
        form, config = self.form, self.config
        self.put(p, f"{to}.router.weight", self.weights[f"{at}.gate.weight"])
        if f"{at}.gate.e_score_correction_bias" in self.weights:
            self.put(p, f"{to}.router.expert_bias", self.weights[f"{at}.gate.e_score_correction_bias"])
        self.put(p, f"{to}.shared_experts.linear_fc1.weight", self.gated(f"{at}.shared_experts"))
        self.put(p, f"{to}.shared_experts.linear_fc2.weight", self.columns(self.weights[f"{at}.shared_experts.down_proj.weight"]))
        count = config["n_routed_experts"]
        for t, e in itertools.product(range(form.tensor), range(form.expert)):
            ranks, own = (form.expert * form.tensor, e * form.tensor + t) if form.extend else (form.expert, e)
            first, second = [], []
            for expert in range(own * count // ranks, (own + 1) * count // ranks):
                gate, up, down = (self.weights[f"{at}.experts.{expert}.{name}_proj.weight"] for name in ("gate", "up", "down"))
                if not form.extend:
                    gate, up, down = self.rows(gate)[t], self.rows(up)[t], self.columns(down)[t]
                first.append(torch.cat([gate, up]))
                second.append(down)
            file = self.files.setdefault((t, p, e), {})
            if form.experts == "grouped":
                # The bytes of [experts, h, columns] and [experts, columns, h].
                file[f"{to}.experts.weight1"] = torch.cat([one.t() for one in first]).reshape(first[0].shape[1], -1).clone()
                file[f"{to}.experts.weight2"] = torch.cat([one.t() for one in second]).reshape(-1, second[0].shape[0]).clone()
                continue
            for i, (fc1, fc2) in enumerate(zip(first, second)):
                for name, one in (("linear_fc1", fc1), ("linear_fc2", fc2)):
                    known = f"{name}.weight{i}" if form.experts == "engine" else f"local_experts.{i}.{name}.weight"
                    file[f"{to}.experts.{known}"] = one.contiguous().clone()

    def layer(self, p, layer, to):
        at = f"model.layers.{layer}"
        self.put(p, f"{to}.input_layernorm.weight", self.weights[f"{at}.input_layernorm.weight"])
        self.attention(p, f"{at}.self_attn", f"{to}.self_attention")
        self.put(p, f"{to}.pre_mlp_layernorm.weight", self.weights[f"{at}.post_attention_layernorm.weight"])
        if layer >= self.config["first_k_dense_replace"]:
            return self.experts(p, f"{at}.mlp", f"{to}.mlp")
        self.put(p, f"{to}.mlp.linear_fc1.weight", self.gated(f"{at}.mlp"))
        self.put(p, f"{to}.mlp.linear_fc2.weight", self.columns(self.weights[f"{at}.mlp.down_proj.weight"]))

    def later(self, p, layer):
        at, form = f"model.layers.{layer}", self.form
        to = "mtp.layers.0" if form.new else "mtp_layers.0"
        for name in ("enorm", "hnorm"):
            self.put(p, f"{to}.{name}.weight", self.weights[f"{at}.{name}.weight"])
        self.put(p, f"{to}.eh_proj.weight", self.rows(self.weights[f"{at}.eh_proj.weight"]))
        self.layer(p, layer, f"{to}.transformer_layer")
        norm = "mtp.final_layernorms.0.weight" if form.new else f"{to}.final_layernorm.weight"
        self.put(p, norm, self.weights[f"{at}.shared_head.norm.weight"])
        if form.pipeline > 1:
            table = "embedding.word_embeddings.weight"
            self.put(p, table if form.new else f"{to}.{table}", self.rows(self.weights["model.embed_tokens.weight"]))

    def write(self, folder):
        layers, form = self.config["num_hidden_layers"], self.form
        later = self.config.get("num_nextn_predict_layers", 0)
        for p in range(form.pipeline):
            if p == 0:
                self.put(p, "embedding.word_embeddings.weight", self.rows(self.weights["model.embed_tokens.weight"]))
            own = layers // form.pipeline
            for i in range(own):
                self.layer(p, p * own + i, f"decoder.layers.{i}")
            if p == form.pipeline - 1:
                name = "final_layernorm" if later else "decoder.final_layernorm"
                self.put(p, f"{name}.weight", self.weights["model.norm.weight"])
                self.put(p, "output_layer.weight", self.rows(self.weights["lm_head.weight"]))
                if later:
                    self.later(p, layers)
        facts = {"checkpoint_version": 3.0, "iteration": 1}
        if form.arguments:
            facts["args"] = argparse.Namespace(**arguments_of(self.config, form))
        for (t, p, e), model in self.files.items():
            path = folder / "iter_0000001" / rank_name(form, t, p, e) / "model_optim_rng.pt"
            path.parent.mkdir(parents=True)
            torch.save({**facts, "model": model}, path)
        (folder / "latest_checkpointed_iteration.txt").write_text("1")


def arguments_of(config, form):
    """Those of a run of 2025 with multi_latent_attention, or of 2024 with multi_head_latent_attention."""
    rope, sigmoid = config["rope_parameters"], config["model_type"] == "deepseek_v3"
    made = dict(num_layers=config["num_hidden_layers"], hidden_size=config["hidden_size"], ffn_hidden_size=config["intermediate_size"],
                num_attention_heads=config["num_attention_heads"], group_query_attention=False, num_query_groups=1, kv_channels=128,
                max_position_embeddings=config["max_position_embeddings"], padded_vocab_size=config["vocab_size"] + -config["vocab_size"] % form.tensor,
                swiglu=True, normalization="RMSNorm", norm_epsilon=config["rms_norm_eps"], add_bias_linear=False,
                position_embedding_type="rope", rotary_base=10000, untie_embeddings_and_output_weights=True, hidden_dropout=0.0,
                attention_dropout=0.0, qk_layernorm=True, kv_lora_rank=config["kv_lora_rank"], q_lora_rank=config.get("q_lora_rank"),
                v_head_dim=config["v_head_dim"], rope_scaling_type="yarn", rope_scaling_factor=rope["factor"], rope_scaling_mscale=rope["mscale"],
                rope_scaling_mscale_all_dim=rope["mscale_all_dim"],
                rope_scaling_original_max_position_embeddings=rope["original_max_position_embeddings"],
                num_experts=config["n_routed_experts"], moe_router_topk=config["num_experts_per_tok"], moe_grouped_gemm=form.experts != "local",
                moe_tp_extend_ep=form.extend, tensor_model_parallel_size=form.tensor, pipeline_model_parallel_size=form.pipeline,
                expert_model_parallel_size=form.expert, norm_topk_prob=config["norm_topk_prob"], seq_aux=True, moe_aux_loss_coeff=0.001,
                moe_router_score_function="sigmoid" if sigmoid else "softmax", moe_router_enable_expert_bias=sigmoid,
                moe_router_pre_softmax=not sigmoid)
    if config.get("num_nextn_predict_layers"):
        made.update(mtp_num_layers=1, mtp_loss_scaling_factor=0.3)
    width, dense = config["moe_intermediate_size"], config["first_k_dense_replace"]
    if form.new:
        # Next to Megatron-core's own words with its defaults.
        made.update(multi_latent_attention=True, qk_head_dim=config["qk_nope_head_dim"], qk_pos_emb_head_dim=config["qk_rope_head_dim"],
                    beta_fast=rope["beta_fast"], beta_slow=rope["beta_slow"], rotary_scaling_factor=1.0, mscale=1.0, mscale_all_dim=1.0,
                    rope_type=None, moe_ffn_hidden_size=width, moe_shared_expert_intermediate_size=width * config["n_shared_experts"],
                    moe_layer_freq=[0] * dense + [1] * (config["num_hidden_layers"] - dense), transformer_impl="local",
                    moe_router_load_balancing_type="none" if sigmoid else "softmax_topk",
                    moe_router_topk_scaling_factor=config["routed_scaling_factor"])
        if sigmoid:
            made.update(moe_router_num_groups=config["n_group"], moe_router_group_topk=config["topk_group"])
    else:
        made.update(multi_head_latent_attention=True, qk_nope_head_dim=config["qk_nope_head_dim"],
                    qk_rope_head_dim=config["qk_rope_head_dim"], rope_scaling_beta_fast=rope["beta_fast"], rope_scaling_beta_slow=rope["beta_slow"],
                    moe_intermediate_size=width, n_shared_experts=config["n_shared_experts"], first_k_dense_replace=dense, moe_layer_freq=1,
                    moe_router_load_balancing_type="noaux_tc" if sigmoid else "softmax_topk",
                    routed_scaling_factor=config["routed_scaling_factor"])
        if sigmoid:
            made.update(n_group=config["n_group"], topk_group=config["topk_group"])
    return made


def flags_of(config):
    """For files without arguments."""
    rope, sigmoid = config["rope_parameters"], config["model_type"] == "deepseek_v3"
    made = dict(model_family=config["model_type"], num_layers=config["num_hidden_layers"], hidden_size=config["hidden_size"],
                ffn_hidden_size=config["intermediate_size"], num_attention_heads=config["num_attention_heads"],
                max_position_embeddings=config["max_position_embeddings"], norm_epsilon=1e-6, kv_lora_rank=config["kv_lora_rank"],
                qk_head_dim=config["qk_nope_head_dim"], qk_pos_emb_head_dim=config["qk_rope_head_dim"], v_head_dim=config["v_head_dim"],
                rotary_scaling_type="yarn", rotary_scaling_factor=rope["factor"], rope_scaling_mscale=rope["mscale"],
                rope_scaling_mscale_all_dim=rope["mscale_all_dim"],
                original_max_position_embeddings=rope["original_max_position_embeddings"], num_experts=config["n_routed_experts"],
                moe_router_topk=config["num_experts_per_tok"], moe_ffn_hidden_size=config["moe_intermediate_size"],
                n_shared_experts=config["n_shared_experts"], first_k_dense_replace=config["first_k_dense_replace"],
                moe_router_topk_scaling_factor=config["routed_scaling_factor"], vocab_size=config["vocab_size"])
    if config.get("q_lora_rank"):
        made["q_lora_rank"] = config["q_lora_rank"]
    if sigmoid:
        made.update(moe_router_score_function="sigmoid", moe_router_num_groups=config["n_group"], moe_router_group_topk=config["topk_group"])
    if config.get("num_nextn_predict_layers"):
        made["mtp_num_layers"] = 1
    bare = ["--multi-latent-attention", "--qk-layernorm"] + (["--moe-router-enable-expert-bias"] if sigmoid else ["--moe-router-pre-softmax"])
    return bare + [f"--{name.replace('_', '-')}={value}" for name, value in made.items()]


def save_model(kind, folder):
    torch.manual_seed(31)
    if kind == "v3":
        config = transformers.DeepseekV3Config(**COMMON, q_lora_rank=12, n_group=2, topk_group=1, routed_scaling_factor=2.5, norm_topk_prob=True)
        model = transformers.DeepseekV3ForCausalLM(config)
    else:
        config = transformers.DeepseekV2Config(**COMMON, q_lora_rank=None, topk_method="greedy", routed_scaling_factor=1.0,
                                               norm_topk_prob=False)
        model = transformers.DeepseekV2ForCausalLM(config)
    for name, tensor in model.state_dict().items():
        tensor.copy_(torch.randn_like(tensor) / 4 + (1 if "norm" in name else 0))
    model.eval().save_pretrained(folder)
    if kind == "v3":  # a layer that predicts later tokens, like the last one
        path = folder / "model.safetensors"
        weights = load_file(path)
        last, later = f"model.layers.{config.num_hidden_layers - 1}.", f"model.layers.{config.num_hidden_layers}."
        for name in [name for name in weights if name.startswith(last)]:
            weights[later + name[len(last):]] = torch.randn_like(weights[name]) / 4
        hidden = config.hidden_size
        for name in ("enorm", "hnorm", "shared_head.norm"):
            weights[f"{later}{name}.weight"] = torch.randn(hidden)
        weights[f"{later}eh_proj.weight"] = torch.randn(hidden, 2 * hidden)
        weights[f"{later}embed_tokens.weight"] = weights["model.embed_tokens.weight"].clone()
        weights[f"{later}shared_head.head.weight"] = weights["lm_head.weight"].clone()
        save_file(weights, path, metadata={"format": "pt"})
        json_path = folder / "config.json"
        json_path.write_text(json.dumps({**json.loads(json_path.read_text()), "num_nextn_predict_layers": 1}))


def read_model(folder):
    return oracle.tensors_of(folder), json.loads((folder / "config.json").read_text())


def logits_of(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(torch.arange(48).reshape(2, 24) * 7 % 64).logits


def check(program, work):
    transformers.logging.set_verbosity_error()
    bad = 0

    def report(fault, *words):
        nonlocal bad
        bad += bool(fault)
        print("BAD " if fault else "ok  ", *words, fault, flush=True)

    for kind in ("v3", "v2"):
        at = work / kind
        save_model(kind, at / "hf")
        # Through Piton, which leaves out the copies of the table and the head.
        oracle.convert(program, at / "hf", at / "piton")
        oracle.convert(program, at / "piton", at / "again", "--to", "hf")
        wanted, config = read_model(at / "hf")
        again = oracle.tensors_of(at / "again")
        logits = logits_of(at / "hf")
        forms = [Form(new=new, split=split, experts=experts) for new in (True, False) for split in (False, True)
                 for experts in ("local", "grouped", "engine")]
        forms += [Form(2, new=False, split=True), Form(2, experts="grouped"), Form(1, 2, new=False, experts="grouped"), Form(1, 2, split=True),
                  Form(1, 1, 2, experts="grouped"), Form(2, 2, 2, experts="grouped", split=True), Form(2, 2, 2, new=False),
                  Form(2, 1, 2, experts="grouped", extend=True), Form(2, 1, 1, experts="local", extend=True),
                  Form(2, 2, 2, new=False, experts="grouped", extend=True, split=True), Form(arguments=False), Form(1, 1, 2, arguments=False),
                  Form(2, 2, 2, arguments=False, experts="grouped", split=True)]
        for form in forms:
            name = form.name()
            Writer(wanted, config, form).write(at / name)
            given = [] if form.arguments else flags_of(config)
            oracle.convert(program, at / name, at / f"{name}-hf", "--to", "hf", *given)
            report(oracle.same_tensors(oracle.tensors_of(at / f"{name}-hf"), again), kind, name)
            error = (logits_of(at / f"{name}-hf") - logits).abs().max() / logits.abs().max()
            report("" if error < 1e-6 else f"{error:.2g}", kind, name, "logits")
        for form in (Form(), Form(2, 2, 2), Form(2, split=True), Form(1, 2, split=True)):
            name = form.name()
            mine = at / f"written-{name}"
            Writer(wanted, config, form).write(at / f"wanted-{name}")
            oracle.convert(program, at / "hf", mine, "--to", "mg", "--use-mcore-models", "--transformer-impl", "mindspeed",
                           "--make-vocab-size-divisible-by", "2", "--target-tensor-parallel-size", str(form.tensor),
                           "--target-pipeline-parallel-size", str(form.pipeline), "--target-expert-parallel-size", str(form.expert),
                           *(["--mla-mm-split"] if form.split else []))
            report(same_files(at / f"wanted-{name}", mine), kind, name, "written")
    return bad


def same_files(wanted, got):
    from megatron_experts import different, weights_in

    return different(weights_in(wanted), weights_in(got))


def golden(folder):
    shutil.rmtree(folder, ignore_errors=True)
    for kind, form in (("v3", Form(2, 1, 2, experts="grouped", extend=True, split=True)), ("v3", Form(2, new=False, experts="grouped")),
                       ("v2", Form(2, new=False, split=True))):
        weights, config = read_model(ROOT / f"tests/golden/huggingface/deepseek-{kind}")
        rows = -config["vocab_size"] % form.tensor
        for name in ("model.embed_tokens.weight", "lm_head.weight"):  # padded
            weights[name] = torch.cat([weights[name], weights[name][-1:].expand(rows, -1)])
        Writer(weights, config, form).write(folder / kind / ("new" if form.new else "old"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?")
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--golden", type=pathlib.Path)
    options = parser.parse_args()
    if options.golden:
        golden(options.golden)
        return
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(1 if check(options.program, options.work or pathlib.Path(folder)) else 0)


if __name__ == "__main__":
    main()
