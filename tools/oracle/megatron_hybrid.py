"""The model `hybrid` of megatron_newer.py: a MambaModel of megatron-core with random weights, as Nemotron-H has its layers (Mamba-2,
attention, MLPs and experts, each a letter). Needs einops.

mamba_ssm and causal_conv1d want a GPU: what core calls of them is computed here, row by row in float64. Transformer Engine is not here:
norms that its linears hold are modules next to them, which files name as Transformer Engine does.
"""
import argparse
import sys
import types

import torch

PATTERN = "M-M*EM*-"  # two stages divide attention from the experts of its layer
SHAPE = dict(num_layers=len(PATTERN), hidden_size=32, num_attention_heads=4, ffn_hidden_size=24)
MAMBA = dict(mamba_state_dim=10, mamba_head_dim=6, mamba_num_groups=2, mamba_num_heads=4)
MOE = dict(num_moe_experts=4, moe_router_topk=2, moe_ffn_hidden_size=8, moe_shared_expert_intermediate_size=12)
ROUTER = dict(moe_router_score_function="sigmoid", moe_router_enable_expert_bias=True, moe_router_topk_scaling_factor=2.5)
HEAD, VOCABULARY = 12, 64


def scan(zxbcdt, filters, biases, step_biases, rates, D, chunk_size, activation, headdim, ngroups, norm_before_gate, seq_idx):
    """mamba_split_conv1d_scan_combined without a norm. zxbcdt: [samples, rows, channels]; rates: -exp(A_log)."""
    assert activation == "silu" and not norm_before_gate and seq_idx is None
    heads = len(rates)
    values = heads * headdim
    z, convolved, steps = zxbcdt.double().split([values, filters.shape[0], heads], dim=-1)
    width, rows = filters.shape[1], zxbcdt.shape[1]
    padded = torch.nn.functional.pad(convolved.mT, (width - 1, 0))
    convolved = torch.nn.functional.conv1d(padded, filters.double()[:, None], biases.double(), groups=len(filters))
    x, b, c = torch.nn.functional.silu(convolved).mT.split([values, *[(len(filters) - values) // 2] * 2], dim=-1)
    shape = (*zxbcdt.shape[:2], heads, -1)
    x = x.reshape(shape)
    b, c = (one.reshape(*zxbcdt.shape[:2], ngroups, -1).repeat_interleave(heads // ngroups, dim=2) for one in (b, c))
    steps = torch.nn.functional.softplus(steps + step_biases.double())
    state = torch.zeros(len(x), heads, headdim, b.shape[-1], dtype=torch.float64)
    results = []
    for row in range(rows):
        decay = (steps[:, row] * rates.double()).exp()[..., None, None]
        state = decay * state + steps[:, row, :, None, None] * x[:, row, ..., None] * b[:, row, :, None]
        results.append((state * c[:, row, :, None]).sum(-1) + D.double()[:, None] * x[:, row])
    y = torch.stack(results, dim=1).flatten(2) * torch.nn.functional.silu(z)
    return y.to(zxbcdt.dtype)


class GroupNorm(torch.nn.Module):
    """mamba_ssm's RMSNorm of groups; core gives it what is gated already."""

    def __init__(self, hidden_size, eps, group_size, norm_before_gate, device, dtype):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=dtype))
        self.eps, self.group_size = eps, group_size

    def forward(self, x):
        groups = x.double().unflatten(-1, (-1, self.group_size))
        groups = groups * torch.rsqrt(groups.pow(2).mean(-1, keepdim=True) + self.eps)
        return (groups.flatten(-2) * self.weight.double()).to(x.dtype)


def prepare():
    """Before megatron.core.ssm is imported."""
    names = {"mamba_ssm.ops.triton.selective_state_update": dict(selective_state_update=None),
             "mamba_ssm.ops.triton.layernorm_gated": dict(RMSNorm=GroupNorm),
             "mamba_ssm.ops.triton.ssd_combined": dict(mamba_chunk_scan_combined=None, mamba_split_conv1d_scan_combined=scan),
             "causal_conv1d": dict(causal_conv1d_fn=None, causal_conv1d_update=None),
             "causal_conv1d.causal_conv1d_varlen": dict(causal_conv1d_varlen_states=None)}
    for name, members in names.items():
        for i in range(1, name.count(".") + 1):
            outer = ".".join(name.split(".")[:i])
            sys.modules.setdefault(outer, types.ModuleType(outer))
        module = sys.modules.setdefault(name, types.ModuleType(name))
        for member, value in members.items():
            setattr(module, member, value)
    from megatron.core.ssm import mamba_block, mamba_mixer
    from megatron.core.transformer.moe import moe_utils
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    moe_utils.te_general_gemm = None
    mamba_mixer.HAVE_MAMBA_SSM = True
    mamba_block.TENorm = WrappedTorchNorm
    torch.cuda.current_device = lambda: "cpu"


def stack_spec(config):
    """mamba_layer_specs.py, of core's own layers."""
    from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
    from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
    from megatron.core.ssm.mamba_block import MambaStack, MambaStackSubmodules
    from megatron.core.ssm.mamba_layer import MambaLayer, MambaLayerSubmodules
    from megatron.core.ssm.mamba_mixer import MambaMixer, MambaMixerSubmodules
    from megatron.core.ssm.mlp_layer import MLPLayer
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.core.transformer.enums import AttnMaskType
    from megatron.core.transformer.mlp import MLP, MLPSubmodules
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.torch_norm import WrappedTorchNorm
    from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules

    mixer = ModuleSpec(module=MambaMixer, submodules=MambaMixerSubmodules(in_proj=ColumnParallelLinear, out_proj=RowParallelLinear))
    attention = ModuleSpec(module=SelfAttention, params={"attn_mask_type": AttnMaskType.causal}, submodules=SelfAttentionSubmodules(
        linear_qkv=ColumnParallelLinear, core_attention=DotProductAttention, linear_proj=RowParallelLinear))
    mlp = ModuleSpec(module=MLP, submodules=MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear))
    experts = get_moe_module_spec(use_te=False, num_experts=config.num_moe_experts, moe_grouped_gemm=False)
    return ModuleSpec(module=MambaStack, submodules=MambaStackSubmodules(
        mamba_layer=ModuleSpec(module=MambaLayer, submodules=MambaLayerSubmodules(
            norm=WrappedTorchNorm, mixer=mixer, mamba_bda=get_bias_dropout_add,
            sharded_state_dict_keys_map={"norm.": "mixer.in_proj.layer_norm_"})),
        attention_layer=ModuleSpec(module=TransformerLayer, submodules=TransformerLayerSubmodules(
            input_layernorm=WrappedTorchNorm, self_attention=attention, self_attn_bda=get_bias_dropout_add,
            sharded_state_dict_keys_map={"input_layernorm.": "self_attention.linear_qkv.layer_norm_"})),
        mlp_layer=ModuleSpec(module=MLPLayer, submodules=TransformerLayerSubmodules(
            pre_mlp_layernorm=WrappedTorchNorm, mlp=mlp, mlp_bda=get_bias_dropout_add,
            sharded_state_dict_keys_map={"pre_mlp_layernorm.": "mlp.linear_fc1.layer_norm_"})),
        moe_layer=ModuleSpec(module=TransformerLayer, submodules=TransformerLayerSubmodules(
            pre_mlp_layernorm=WrappedTorchNorm, mlp=experts, mlp_bda=get_bias_dropout_add))))


def hybrid_model(layout, dtype):
    prepare()
    from megatron.core import parallel_state
    from megatron.core.activations import squared_relu
    from megatron.core.models.mamba.mamba_model import MambaModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    config = TransformerConfig(
        **SHAPE, **MAMBA, **MOE, **ROUTER, kv_channels=HEAD, num_query_groups=2, use_cpu_initialization=True, hidden_dropout=0.0,
        attention_dropout=0.0, bias_activation_fusion=False, masked_softmax_fusion=False, persist_layer_norm=False, gated_linear_unit=False,
        activation_func=squared_relu, normalization="RMSNorm", add_bias_linear=False, layernorm_epsilon=1e-5, is_hybrid_model=True,
        tensor_model_parallel_size=layout.tensor, pipeline_model_parallel_size=layout.pipeline,
        expert_model_parallel_size=layout.expert, expert_tensor_parallel_size=layout.expert_tensor,
        moe_token_dispatcher_type="allgather", params_dtype=dtype, pipeline_dtype=dtype, perform_initialization=False)
    model = MambaModel(config, stack_spec(config), vocab_size=VOCABULARY, max_sequence_length=64, hybrid_override_pattern=PATTERN,
                       share_embeddings_and_output_weights=False, pre_process=parallel_state.is_pipeline_first_stage(),
                       post_process=parallel_state.is_pipeline_last_stage()).to(dtype).eval()
    moe = dict(MOE, num_experts=MOE["num_moe_experts"])
    del moe["num_moe_experts"]
    arguments = argparse.Namespace(
        **SHAPE, **MAMBA, **moe, **ROUTER, is_hybrid_model=True, hybrid_override_pattern=PATTERN, hybrid_attention_ratio=0.0,
        hybrid_mlp_ratio=0.0, moe_layer_freq=1, kv_channels=HEAD, group_query_attention=True, num_query_groups=2,
        max_position_embeddings=64, padded_vocab_size=VOCABULARY, vocab_size=None, tensor_model_parallel_size=layout.tensor,
        pipeline_model_parallel_size=layout.pipeline, expert_model_parallel_size=layout.expert,
        expert_tensor_parallel_size=layout.expert_tensor, swiglu=False, squared_relu=True, bias_gelu_fusion=False,
        normalization="RMSNorm", norm_epsilon=1e-5, add_bias_linear=False, position_embedding_type="none",
        untie_embeddings_and_output_weights=True, hidden_dropout=0.0, attention_dropout=0.0, params_dtype=dtype)
    return model, arguments


def engine_name(name):
    """Of a norm that a linear of Transformer Engine holds; any other name as it is."""
    return name.replace(".norm.weight", ".mixer.in_proj.layer_norm_weight") if name.rsplit(".", 3)[1].isdigit() else name
