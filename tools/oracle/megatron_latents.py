"""Latent attention in Megatron's files, read and written by `piton convert`.

  python tools/oracle/megatron_latents.py build/piton [--work DIR]  (torch 2.15, transformers 5.23, megatron-core 0.16.1)
  python tools/oracle/megatron_latents.py --golden tests/golden/megatron/latents

GPTModels of megatron-core with multi_latent_attention, a layer without experts and one with them, and random weights:
`v3` as DeepSeek-V3 (small rows of queries, yarn, sigmoid router with an expert bias, a layer that predicts later tokens), `v2` as DeepSeek-V2-Lite (whole
queries, rotary positions without scaling). One process saves each; processes of other layouts load that folder by
dist_checkpointing and save what their modules have (megatron_experts.py).

Read: all become the same tensors, and a Hugging Face folder with the logits of the first model. Written: files of ranks have
the names and bytes of Megatron-core's modules, and dist_checkpointing.load gives every rank the same bytes from a folder of
torch_dist as from its own. Transformer Engine is not here: files of its layers are those of core's with its names, and with
the matrices of small rows whole on every rank, as TELinear has them.
"""
import argparse
import pathlib
import shutil
import sys
import tempfile

import torch

from megatron_experts import Layout, begin, different, rank_folder, save, weights_in
from megatron_torch_dist import folder_of, randomize

SHAPE = dict(num_layers=2, hidden_size=16, num_attention_heads=4, ffn_hidden_size=24)
MOE = dict(num_moe_experts=4, moe_router_topk=2, moe_ffn_hidden_size=8, moe_shared_expert_intermediate_size=16,
           moe_layer_freq=[0, 1])
LATENT = dict(kv_lora_rank=8, qk_head_dim=6, qk_pos_emb_head_dim=4, v_head_dim=5)
KINDS = {
    "v3": dict(q_lora_rank=12, rope_type="yarn", rotary_scaling_factor=4.0, original_max_position_embeddings=16, beta_fast=8.0,
               beta_slow=1.0, mscale=0.7, mscale_all_dim=0.9, moe_router_score_function="sigmoid",
               moe_router_enable_expert_bias=True, moe_router_topk_scaling_factor=2.5, mtp_num_layers=1,
               mtp_loss_scaling_factor=0.3),
    "v2": dict(q_lora_rank=None, rope_type="rope", rotary_scaling_factor=1.0, moe_router_pre_softmax=True),
}
VOCABULARY, TOKENS = 64, 24


def attention_of_latents():
    """Core's own attention, which takes no widths of keys and values, as the classes of Transformer Engine do."""
    from megatron.core.transformer.dot_product_attention import DotProductAttention

    class LatentAttention(DotProductAttention):
        def __init__(self, *arguments, k_channels=None, v_channels=0, **more):
            super().__init__(*arguments, **more)
            self.hidden_size_per_partition = v_channels * self.num_attention_heads_per_partition

    return LatentAttention


def core_model(layout, kind, dtype=torch.bfloat16, later=True):
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_mtp_block_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer import multi_latent_attention
    from megatron.core.transformer.moe import moe_utils
    from megatron.core.transformer.transformer_config import MLATransformerConfig

    # These modules believe that Transformer Engine is here.
    multi_latent_attention.HAVE_TE = False
    moe_utils.te_general_gemm = None
    more = {**KINDS[kind]}
    if not later:
        more.pop("mtp_num_layers", None)
    config = MLATransformerConfig(
        **SHAPE, **MOE, **LATENT, **more, qk_layernorm=True, use_cpu_initialization=True, hidden_dropout=0.0,
        attention_dropout=0.0, bias_activation_fusion=False, masked_softmax_fusion=False, persist_layer_norm=False,
        gated_linear_unit=True, activation_func=torch.nn.functional.silu, normalization="RMSNorm", add_bias_linear=False,
        layernorm_epsilon=1e-6, rotary_base=10000, apply_rope_fusion=False, tensor_model_parallel_size=layout.tensor,
        pipeline_model_parallel_size=layout.pipeline,
        expert_model_parallel_size=layout.expert, expert_tensor_parallel_size=layout.expert_tensor,
        moe_token_dispatcher_type="allgather", params_dtype=dtype, pipeline_dtype=dtype)
    block = get_gpt_decoder_block_spec(config, use_transformer_engine=False)
    for layer in block.layer_specs:
        layer.submodules.self_attention.submodules.core_attention = attention_of_latents()
    model = GPTModel(config, block, vocab_size=VOCABULARY,
                     max_sequence_length=64, position_embedding_type="rope", share_embeddings_and_output_weights=False,
                     mtp_block_spec=get_gpt_mtp_block_spec(config, block, use_transformer_engine=False),
                     pre_process=parallel_state.is_pipeline_first_stage(),
                     post_process=parallel_state.is_pipeline_last_stage()).to(dtype).eval()
    arguments = argparse.Namespace(
        **SHAPE, **{name: value for name, value in MOE.items() if name != "num_moe_experts"}, num_experts=4, **LATENT, **more,
        multi_latent_attention=True, qk_layernorm=True, moe_grouped_gemm=False, kv_channels=128, group_query_attention=False,
        num_query_groups=1, max_position_embeddings=64, padded_vocab_size=VOCABULARY, vocab_size=None,
        tensor_model_parallel_size=layout.tensor, pipeline_model_parallel_size=layout.pipeline,
        expert_model_parallel_size=layout.expert, expert_tensor_parallel_size=layout.expert_tensor, swiglu=True,
        bias_gelu_fusion=False, normalization="RMSNorm", norm_epsilon=1e-6, add_bias_linear=False,
        position_embedding_type="rope", rotary_base=10000, untie_embeddings_and_output_weights=True, hidden_dropout=0.0,
        attention_dropout=0.0, params_dtype=dtype)
    return model, arguments


def sharded(model):
    from megatron.core import parallel_state

    return model.sharded_state_dict(metadata={"dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)})


def worker(rank, world, port, job):
    from megatron.core import dist_checkpointing
    from megatron.core import parallel_state as mpu

    layout = job["layout"]
    begin(rank, world, port, layout)
    torch.manual_seed(23)
    # Core wants labels where it predicts later tokens.
    wide = "logits" in job
    model, arguments = core_model(layout, job["kind"], torch.float32 if wide else torch.bfloat16, later=not wide)
    if "source" in job:
        state = {"model": sharded(model)}
        model.load_state_dict(dist_checkpointing.load(state, str(job["source"]))["model"], strict=False)
    else:
        randomize(model)
        for name, bias in model.named_buffers():
            if name.endswith("expert_bias"):
                bias.copy_(torch.randn_like(bias) / 4)
    facts = {"args": arguments, "checkpoint_version": 3.0, "iteration": 5}
    if "files" in job and mpu.get_expert_data_parallel_rank() == 0:
        state = {name: one.clone() for name, one in model.state_dict().items() if torch.is_tensor(one)}
        if job.get("transformer"):
            state = transformer_state(state, layout)
        path = job["files"] / rank_folder(layout) / "model_optim_rng.pt"
        path.parent.mkdir(parents=True)
        torch.save({**facts, "model": state}, path)
    if "target" in job:
        if rank == 0:
            job["target"].mkdir(parents=True)
        torch.distributed.barrier()
        dist_checkpointing.save({**facts, "model": sharded(model)}, str(job["target"]))
    if "logits" in job:
        tokens = torch.arange(2 * TOKENS).reshape(2, TOKENS) * 7 % VOCABULARY
        positions = torch.arange(TOKENS).expand(2, TOKENS)
        mask = torch.ones(1, 1, TOKENS, TOKENS, dtype=torch.bool).triu(1)
        with torch.no_grad():
            torch.save((tokens, model(tokens, positions, mask)), job["logits"])
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def transformer_state(state, layout):
    """As layers of Transformer Engine have it, on a rank of several."""
    from megatron.core import parallel_state as mpu

    made = {}
    for name, tensor in state.items():
        if layout.tensor > 1 and ("q_down_proj." in name or "kv_down_proj." in name):
            parts = [torch.empty_like(tensor) for _ in range(layout.tensor)]
            torch.distributed.all_gather(parts, tensor, group=mpu.get_tensor_model_parallel_group())
            tensor = torch.cat(parts)
        name = name.replace(".q_layernorm.", ".linear_q_up_proj.layer_norm_")
        name = name.replace(".kv_layernorm.", ".linear_kv_up_proj.layer_norm_")
        if name.replace("pre_mlp_layernorm", "mlp.router") not in state:  # a layer without experts
            name = name.replace("pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_")
        made[name] = tensor
    return made


def reader(rank, world, port, job):
    """A folder gives every rank the bytes that another one gives it."""
    from megatron.core import dist_checkpointing
    from megatron.core.safe_globals import register_safe_globals

    begin(rank, world, port, job["layout"])
    register_safe_globals()
    torch.manual_seed(24 + rank)
    model, _ = core_model(job["layout"], job["kind"])

    def read(folder):
        randomize(model)
        state = dist_checkpointing.load({"model": sharded(model)}, str(folder))
        assert state["args"].kv_lora_rank == LATENT["kv_lora_rank"]
        return {name: one.detach().clone() for name, one in state["model"].items() if torch.is_tensor(one)}

    fault = different(read(job["wanted"]), read(job["source"]))
    assert not fault, fault
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def compare_logits(folder, wanted):
    from transformers import AutoModelForCausalLM

    tokens, logits = torch.load(wanted)
    with torch.no_grad():
        got = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(tokens).logits
    error = (got - logits).abs().max() / logits.abs().max()
    return "" if error < 1e-5 else f"{error:.2g}"


def check(program, work):
    import convert as oracle

    bad = 0

    def report(fault, *words):
        nonlocal bad
        bad += bool(fault)
        print("BAD " if fault else "ok  ", *words, fault, flush=True)

    layouts = {"tensor": Layout(tensor=2), "pipeline": Layout(pipeline=2), "2 x 2 x 2": Layout(2, 2, 2)}
    core = ["--use-mcore-models", "--make-vocab-size-divisible-by", "32"]
    own = [*core, "--transformer-impl", "local"]
    for kind in KINDS:
        at = work / kind
        save(Layout(), worker, kind=kind, files=at / "wide", logits=at / "logits.pt")
        oracle.convert(program, at / "wide", at / "hf", "--to", "hf")
        report(compare_logits(at / "hf", at / "logits.pt"), kind, "logits")
        save(Layout(), worker, kind=kind, target=folder_of(at / "first"), files=at / "plain")
        first = at / "first" / "iter_0000005"
        oracle.convert(program, at / "plain", at / "made", "--ckpt-format", "torch_dist", "--transformer-impl", "local",
                       "--make-vocab-size-divisible-by", "64", "--max-shard-size", "20k")
        for source in (at / "first", at / "hf"):
            oracle.convert(program, source, at / f"back-{source.name}", "--to", "mg", *own)
        report(different(weights_in(at / "plain"), weights_in(at / "back-first")), kind, "torch_dist to one rank")
        report(different(weights_in(at / "wide"), weights_in(at / "back-hf")), kind, "Hugging Face to one rank")
        for name, layout in layouts.items():
            ranks = at / name.replace(" ", "")
            for layers in ("local", "transformer_engine"):
                files = ranks / layers
                save(layout, worker, kind=kind, source=first, files=files, transformer=layers != "local")
                given = ["--target-tensor-parallel-size", str(layout.tensor), "--target-pipeline-parallel-size",
                         str(layout.pipeline), "--target-expert-parallel-size", str(layout.expert), "--transformer-impl", layers]
                oracle.convert(program, at / "plain", ranks / f"made-{layers}", "--to", "mg", *core, *given)
                fault = different(named_alike(weights_in(files)), named_alike(weights_in(ranks / f"made-{layers}")))
                report(fault, kind, "ranks written", name, layers)
                oracle.convert(program, files, ranks / f"back-{layers}", "--to", "mg", *own)
                report(different(weights_in(at / "plain"), weights_in(ranks / f"back-{layers}")), kind, "ranks read", name, layers)
            fault = ""
            try:
                save(layout, reader, kind=kind, wanted=first, source=at / "made" / "release")
            except torch.multiprocessing.ProcessRaisedException as error:
                fault = str(error)
            report(fault, kind, "torch_dist written", name)
    return bad


def named_alike(weights):
    """Experts of Transformer Engine may be one module or a module each."""
    return {name.replace("experts.local_experts.", "experts."): tensor for name, tensor in weights.items()}


def golden(folder):
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as work:
        for kind in KINDS:
            first = pathlib.Path(work) / kind
            save(Layout(), worker, kind=kind, target=first, files=folder / kind / "plain")
            save(Layout(tensor=2, pipeline=2), worker, kind=kind, source=first, files=folder / kind / "divided")
            save(Layout(tensor=2), worker, kind=kind, source=first, files=folder / kind / "transformer", transformer=True)
            if kind == "v3":
                save(Layout(), worker, kind=kind, source=first, target=folder_of(folder / kind / "dist"))


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
