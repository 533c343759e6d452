"""Models without experts and the mixtures that Megatron-core makes of them (upcycling_utils.py).

  python tools/oracle/upcycling.py tests/golden/megatron/upcycling.json              (torch 2.15, megatron-core 0.16.1)

Each case is an MLP of a layer with random weights, and what Megatron-core makes of it: the matrices of all experts, by the names of
Piton. Gates and up projections of an MLP are the halves of Megatron's first matrix. The router is random; rows that are equal count.
"""
import argparse
import json
import pathlib

import torch

from megatron_experts import Layout, begin

HIDDEN, WIDTH = 4, 8
CASES = {
    "copies": dict(experts=4, granularity=1, gated=True),
    "slices": dict(experts=4, granularity=2, gated=True),
    "shares": dict(experts=4, granularity=2, gated=True, pre_softmax=True, choices=2),
    "plain": dict(experts=6, granularity=2, gated=False, pre_softmax=True, choices=3),
    "squares": dict(experts=4, granularity=4, gated=False, choices=4),
}


def model_of(experts, width, gated, squared, choices, pre_softmax):
    from megatron.core.activations import squared_relu
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    more = {}
    if experts:
        more = dict(num_moe_experts=experts, moe_router_topk=choices, moe_router_pre_softmax=pre_softmax, moe_ffn_hidden_size=width,
                    moe_layer_freq=1, moe_token_dispatcher_type="allgather")
    function = torch.nn.functional.silu if gated else squared_relu if squared else torch.nn.functional.gelu
    config = TransformerConfig(num_layers=1, hidden_size=HIDDEN, num_attention_heads=1, ffn_hidden_size=width, use_cpu_initialization=True,
                               bias_activation_fusion=False, masked_softmax_fusion=False, persist_layer_norm=False,
                               gated_linear_unit=gated, activation_func=function, add_bias_linear=False, **more)
    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False) if experts else get_gpt_layer_local_spec()
    return GPTModel(config, spec, vocab_size=8, max_sequence_length=8)


def parts(name, first, second, gated):
    halves = dict(zip(("gate", "up"), first.chunk(2))) if gated else {"up": first}
    return {f"{name}.{part}.weight": tensor.double().tolist() for part, tensor in {**halves, "down": second}.items()}


def case(experts, granularity, gated, choices=2, pre_softmax=False, squared=False):
    from megatron.core.transformer.moe.upcycling_utils import upcycle_state_dict

    dense = model_of(0, WIDTH, gated, squared, choices, pre_softmax)
    mixture = model_of(experts, WIDTH // granularity, gated, squared, choices, pre_softmax)
    made = upcycle_state_dict([mixture], [dense])["model"]
    before, at = dense.state_dict(), "decoder.layers.0.mlp."
    tensors = {}
    for expert in range(experts):
        own = f"{at}experts.local_experts.{expert}."
        tensors |= parts(f"layers.0.mlp.experts.{expert}", made[own + "linear_fc1.weight"], made[own + "linear_fc2.weight"], gated)
    router = made[at + "router.weight"]
    return dict(experts=experts, granularity=granularity, gated=gated, squared=squared, choices=choices, normalized=not pre_softmax,
                dense=parts("layers.0.mlp", before[at + "linear_fc1.weight"], before[at + "linear_fc2.weight"], gated), mixture=tensors,
                first_equal_rows=[router.tolist().index(row) for row in router.tolist()])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=pathlib.Path)
    options = parser.parse_args()
    begin(0, 1, 29533, Layout())
    torch.manual_seed(5)
    cases = {name: case(**one, squared=name == "squares") for name, one in CASES.items()}
    origin = "tools/oracle/upcycling.py: megatron-core 0.16.1, torch 2.15, seed 5"
    options.file.write_text(json.dumps({"origin": origin, "hidden": HIDDEN, "width": WIDTH, "cases": cases}, indent=None) + "\n")


if __name__ == "__main__":
    main()
