"""A mixture of experts of Megatron-core 0.16.1 whose inputs are weighted (moe_apply_probs_on_input), in float64 but for the
softmax of its router, which is fp32.

  python tools/oracle/weighted_inputs.py > tests/golden/experts/weighted_inputs.txt     (torch 2.15, megatron-core 0.16.1)

For each case a line "tokens hidden width experts sigmoid capacity", then the tokens [n, h], a slope of the result, the weights:
of the router [e, h], of each expert the first matrix (gate above up) [2 f, h] and the second one [h, f]; the result; and the
gradient of sum(slope * result) by the tokens, by the router, and by the matrices of each expert. With a capacity the experts
drop tokens.
"""
import datetime
import importlib.metadata as metadata
import torch
from megatron.core import parallel_state
from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.moe.moe_layer import MoELayer
from megatron.core.transformer.transformer_config import TransformerConfig

from megatron_torch_dist import join

HIDDEN, WIDTH, EXPERTS = 6, 5, 4


def numbers(*tensors):
    return " ".join(repr(float(one)) for tensor in tensors for one in tensor.detach().flatten())


def layer_of(sigmoid, capacity):
    config = TransformerConfig(
        num_layers=1, hidden_size=HIDDEN, num_attention_heads=2, ffn_hidden_size=WIDTH, num_moe_experts=EXPERTS,
        moe_ffn_hidden_size=WIDTH, moe_router_topk=1, moe_apply_probs_on_input=True, moe_token_dispatcher_type="allgather",
        moe_router_score_function="sigmoid" if sigmoid else "softmax", moe_router_pre_softmax=not sigmoid,
        moe_router_load_balancing_type="none", moe_expert_capacity_factor=capacity or None,
        moe_router_dtype="fp64", use_cpu_initialization=True, add_bias_linear=False,
        gated_linear_unit=True, activation_func=torch.nn.functional.silu, bias_activation_fusion=False,
        params_dtype=torch.float64)
    spec = get_moe_module_spec(use_te=False, num_experts=EXPERTS, moe_grouped_gemm=False)
    layer = MoELayer(config, spec.submodules, layer_number=1, pg_collection=ProcessGroupCollection.use_mpu_process_groups())
    return layer.double()


def main():
    join(0, 1, 29731)
    moe_utils.te_general_gemm = None  # which it reads without Transformer Engine too
    parallel_state.initialize_model_parallel()
    print(f"# tools/oracle/weighted_inputs.py, torch {torch.__version__.split('+')[0]}, megatron-core "
          f"{metadata.version('megatron-core')}, {datetime.date.today()}")
    torch.manual_seed(17)
    for tokens, sigmoid, capacity in ((7, 0, 0), (9, 1, 0), (12, 0, 0.75)):
        layer = layer_of(sigmoid, capacity)
        weights = [layer.router.weight]
        for expert in layer.experts.local_experts:
            weights += [expert.linear_fc1.weight, expert.linear_fc2.weight]
        for weight in weights:
            weight.data = torch.randn_like(weight)
        x = torch.randn(tokens, 1, HIDDEN, dtype=torch.float64).requires_grad_()
        slope = torch.randn(tokens, 1, HIDDEN, dtype=torch.float64)
        y, _ = layer(x)
        (slope * y).sum().backward()
        print(tokens, HIDDEN, WIDTH, EXPERTS, sigmoid, capacity)
        for line in ([x], [slope], weights[:1], weights[1:], [y], [x.grad], [weights[0].grad],
                     [one.grad if one.grad is not None else torch.zeros_like(one) for one in weights[1:]]):
            print(numbers(*line))


main()
