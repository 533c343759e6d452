#!/usr/bin/env python3
"""Quantized matrices as published Hugging Face folders have them, and their values.

    python tools/oracle/quantized_files.py write tests/golden/quantized [NAME...]

Writes NAME.safetensors with one matrix "m.weight" in the tensors of its format, and "values", fp32, what its library
makes of it; the metadata has config.json. Also the folder gpt-oss, a small random model of that family in MXFP4, with
`tokens` and `logits` of Transformers (float64) in expected.safetensors. Who gives the values:

    fp8_*     Transformers (integrations/finegrained_fp8.py, Fp8Dequantize); ragged blocks, which that refuses:
              weight_dequant of DeepSeek-V3 (inference/kernel.py), in PyTorch
    float_*   compressed-tensors (compressors/naive_quantized)
    bnb_*     bitsandbytes, on the CPU; in fp32 where Piton holds codes
    gptq_*    the formulas of AutoGPTQ (auto_gptq/nn_modules/qlinear/qlinear_cuda.py, pack and forward), in fp32
    mxfp4     Transformers (integrations/mxfp4.py, convert_moe_packed_tensors): two experts, "values" [rows of both, in]
    awq_*     those of AutoAWQ (awq/modules/linear/gemm.py, from_linear; awq/utils/packing_utils.py), in fp32

Packages: torch, safetensors, transformers, compressed-tensors, bitsandbytes.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file

ROWS, COLUMNS = 12, 24
FLOAT8 = torch.float8_e4m3fn


def random_matrix(rows=ROWS, columns=COLUMNS):
    return torch.randn(rows, columns) * 0.1


def float8(block, rows=ROWS, columns=COLUMNS, exponents=False, dtype=torch.bfloat16):
    """Blocks of 8-bit floating numbers, with the scales that bring the largest to 448."""
    weight = random_matrix(rows, columns)
    high, wide = block or (rows, columns)
    down, across = -(-rows // high), -(-columns // wide)
    padded = torch.zeros(down * high, across * wide)
    padded[:rows, :columns] = weight
    most = padded.reshape(down, high, across, wide).abs().amax((1, 3))
    scales = most / 448
    if exponents:
        scales = torch.exp2(torch.ceil(torch.log2(scales)))
    spread = scales.repeat_interleave(high, 0).repeat_interleave(wide, 1)[:rows, :columns]
    codes = (weight / spread).clamp(-448, 448).to(FLOAT8)
    if exponents:
        stored = (torch.log2(scales) + 127).to(torch.uint8)
    else:
        stored = scales if block else scales.reshape(())
    if rows % high or columns % wide:
        values = (codes.float() * spread).to(dtype)
    else:
        from transformers.integrations.finegrained_fp8 import Fp8Dequantize

        values = Fp8Dequantize(None)._dequantize_one(codes, stored, dtype)
    config = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
              "weight_block_size": list(block) if block else None}
    if exponents:
        config["scale_fmt"] = "ue8m0"
    tensors = {"m.weight": codes, "m.weight_scale_inv": stored, "values": values.float()}
    return tensors, {"torch_dtype": str(dtype).removeprefix("torch."), "quantization_config": config}


def compressed_float(strategy, dtype):
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams

    weight = random_matrix()
    block = [4, 8] if strategy == "block" else None
    args = QuantizationArgs(num_bits=8, type="float", strategy=strategy, symmetric=True, block_structure=block)
    activations = QuantizationArgs(num_bits=8, type="float", strategy="token", symmetric=True, dynamic=True)
    scheme = QuantizationScheme(targets=["Linear"], weights=args, input_activations=activations,
                                format="float-quantized")
    if strategy == "tensor":
        low, high = weight.min().reshape(1), weight.max().reshape(1)
    elif strategy == "channel":
        low, high = weight.min(1, keepdim=True).values, weight.max(1, keepdim=True).values
    else:
        parts = weight.reshape(ROWS // 4, 4, COLUMNS // 8, 8)
        low, high = parts.amin((1, 3)), parts.amax((1, 3))
    scale, _ = calculate_qparams(low, high, args)
    compressor = BaseCompressor.get_value_from_registry("float-quantized")
    packed = compressor.compress({"weight": weight.to(dtype), "weight_scale": scale.to(dtype)}, scheme)
    values = compressor.decompress(packed, scheme)["weight"].to(torch.bfloat16)
    tensors = {f"m.{key}": value.contiguous() for key, value in packed.items()}
    tensors["values"] = values.float()
    config = QuantizationConfig(config_groups={"group_0": scheme}, format="float-quantized", ignore=["lm_head"],
                                quantization_status="compressed")
    return tensors, {"dtype": "bfloat16", "quantization_config": json.loads(config.model_dump_json())}


def bnb_four_bits(kind, rows, columns, block, nested, dtype, held):
    import bitsandbytes.functional as library

    weight = random_matrix(rows, columns).to(dtype)
    codes, state = library.quantize_4bit(weight, blocksize=block, compress_statistics=nested, quant_type=kind)
    tensors = {"m.weight": codes}
    tensors |= {f"m.weight.{key}": value for key, value in state.as_dict(packed=True).items()}
    if held:
        state.dtype = torch.float32
    tensors["values"] = library.dequantize_4bit(codes, state).float()
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind,
              "bnb_4bit_use_double_quant": nested, "bnb_4bit_compute_dtype": "bfloat16"}
    return tensors, {"torch_dtype": "bfloat16", "quantization_config": config}


def bnb_int8():
    import bitsandbytes.functional as library

    weight = random_matrix()
    codes, largest, _ = library.int8_vectorwise_quant(weight.half())
    values = library.int8_vectorwise_dequant(codes, largest)
    config = {"load_in_8bit": True, "llm_int8_threshold": 6.0}
    tensors = {"m.weight": codes, "m.SCB": largest, "m.weight_format": torch.tensor(0, dtype=torch.uint8),
               "values": values}
    return tensors, {"torch_dtype": "float16", "quantization_config": config}


def gptq_words(numbers, bits):
    """[n, k] to words [n bits / 32, k] along n, as AutoGPTQ packs; 3 bits: 32 numbers in three words."""
    numbers = numbers.to(torch.int64)
    rows = []
    if bits == 3:
        for i in range(0, numbers.shape[0], 32):
            part = numbers[i:i + 32]
            first = sum(part[j] << (3 * j) for j in range(10)) | (part[10] & 3) << 30
            second = part[10] >> 2 & 1 | sum(part[j] << (3 * (j - 11) + 1) for j in range(11, 21)) | (part[21] & 1) << 31
            third = part[21] >> 1 & 3 | sum(part[j] << (3 * (j - 22) + 2) for j in range(22, 32))
            rows += [first, second, third]
    else:
        for i in range(0, numbers.shape[0], 32 // bits):
            rows.append(sum(numbers[i + j] << (bits * j) for j in range(32 // bits)))
    words = torch.stack(rows) & 0xFFFFFFFF
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def quantized_groups(weight, bits, order, groups):
    """Codes [out, in], scales and zero points [groups, out] of a matrix whose column i is of group order[i]."""
    most = 2**bits - 1
    scales, zeros = [], []
    for group in range(groups):
        part = weight[:, order == group]
        low, high = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
        scales.append(((high - low) / most).half())
        zeros.append((-low / scales[-1].float()).round().clamp(1, most))
    scales, zeros = torch.stack(scales), torch.stack(zeros)
    codes = (weight / scales.float()[order].t() + zeros[order].t()).round().clamp(0, most)
    return codes, scales, zeros


def gptq(bits, size, desc_act=False, version="gptq", rows=32, columns=64, indexed=True):
    weight = random_matrix(rows, columns)
    group = columns if size == -1 else size
    order = torch.arange(columns) // group
    if desc_act:
        order = order[torch.randperm(columns)]
    codes, scales, zeros = quantized_groups(weight, bits, order, -(-columns // group))
    values = scales.float()[order].t() * (codes - zeros[order].t())
    stored = zeros - 1 if version == "gptq" else zeros
    tensors = {"m.qweight": gptq_words(codes.t(), bits), "m.qzeros": gptq_words(stored.t(), bits).t(),
               "m.scales": scales, "values": values}
    if indexed:
        tensors["m.g_idx"] = order.to(torch.int32)
    config = {"quant_method": "gptq", "bits": bits, "group_size": size, "desc_act": desc_act, "sym": False,
              "checkpoint_format": version}
    if not indexed:
        del config["checkpoint_format"]
    return tensors, {"torch_dtype": "float16", "quantization_config": config}


def awq_words(numbers):
    """[n, k] to words [n, k / 8], as AutoAWQ packs."""
    words = torch.zeros(numbers.shape[0], numbers.shape[1] // 8, dtype=torch.int64)
    for column in range(words.shape[1]):
        for place, of in enumerate([0, 2, 4, 6, 1, 3, 5, 7]):
            words[:, column] |= numbers[:, column * 8 + of].to(torch.int64) << place * 4
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def awq(size, rows=24, columns=64):
    weight = random_matrix(rows, columns)
    group = columns if size == -1 else size
    order = torch.arange(columns) // group
    codes, scales, zeros = quantized_groups(weight, 4, order, columns // group)
    values = scales.float()[order].t() * (codes - zeros[order].t())
    tensors = {"m.qweight": awq_words(codes.t()), "m.qzeros": awq_words(zeros), "m.scales": scales, "values": values}
    config = {"quant_method": "awq", "bits": 4, "group_size": size, "zero_point": True, "version": "GEMM"}
    return tensors, {"torch_dtype": "float16", "quantization_config": config}


def mxfp4_blocks(experts, rows, columns):
    blocks = torch.randint(0, 256, (experts, rows, columns // 32, 16), dtype=torch.uint8)
    return blocks, torch.randint(121, 126, (experts, rows, columns // 32), dtype=torch.uint8)


def mxfp4_values(blocks, scales):
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    return convert_moe_packed_tensors(blocks, scales)  # [experts, columns, rows]


def mxfp4():
    blocks, scales = mxfp4_blocks(2, 6, 64)
    scales[0, 0, 0], scales[1, 5, 1] = 3, 250
    values = mxfp4_values(blocks, scales).transpose(1, 2).reshape(-1, 64).float()
    tensors = {"m.weight_blocks": blocks, "m.weight_scales": scales, "values": values}
    return tensors, {"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "mxfp4"}}


def gpt_oss(folder):
    import huggingface

    model = huggingface.build(lambda: huggingface.gpt_oss(num_hidden_layers=2, num_local_experts=3, num_experts_per_tok=2,
                                                          intermediate_size=32))
    state = model.state_dict()
    for name in [name for name in state if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, columns, rows = state[name].shape
        blocks, scales = mxfp4_blocks(experts, rows, columns)
        with torch.no_grad():
            model.get_parameter(name).copy_(mxfp4_values(blocks, scales).float())
        del state[name]
        state[name + "_blocks"], state[name + "_scales"] = blocks, scales
    tokens = torch.randint(0, model.config.vocab_size, (huggingface.LENGTH,))
    logits, _ = huggingface.expected(model, tokens)
    folder.mkdir(exist_ok=True)
    config = json.loads(model.config.to_json_string())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file({key: value.contiguous() for key, value in state.items()}, folder / "model.safetensors")
    save_file({"tokens": tokens.to(torch.int32), "logits": logits.contiguous()}, folder / "expected.safetensors",
              {"origin": huggingface.origin("quantized_files")})


CASES = {
    "fp8_blocks": lambda: float8((4, 8)),
    "fp8_half": lambda: float8((4, 8), dtype=torch.float16),
    "fp8_exponents": lambda: float8((4, 8), exponents=True),
    "fp8_ragged": lambda: float8((8, 16), 11, 21),
    "fp8_tensor": lambda: float8(None),
    "float_tensor": lambda: compressed_float("tensor", torch.bfloat16),
    "float_channel": lambda: compressed_float("channel", torch.bfloat16),
    "float_block": lambda: compressed_float("block", torch.float32),
    "bnb_nf4": lambda: bnb_four_bits("nf4", 6, 128, 64, False, torch.bfloat16, True),
    "bnb_nf4_nested": lambda: bnb_four_bits("nf4", 300, 64, 64, True, torch.bfloat16, True),
    "bnb_nf4_wide": lambda: bnb_four_bits("nf4", 6, 128, 128, True, torch.float16, False),
    "bnb_nf4_ragged": lambda: bnb_four_bits("nf4", 6, 50, 64, True, torch.float32, False),
    "bnb_fp4": lambda: bnb_four_bits("fp4", 6, 128, 64, False, torch.bfloat16, False),
    "bnb_int8": bnb_int8,
    "mxfp4": mxfp4,
    "gptq_4": lambda: gptq(4, 16),
    "gptq_4_unnamed": lambda: gptq(4, -1, indexed=False),
    "gptq_4_v2": lambda: gptq(4, 16, version="gptq_v2"),
    "gptq_4_order": lambda: gptq(4, 16, desc_act=True),
    "gptq_8": lambda: gptq(8, 32),
    "gptq_3": lambda: gptq(3, 16),
    "gptq_3_columns": lambda: gptq(3, -1, version="gptq_v2", rows=64, columns=96),
    "gptq_2": lambda: gptq(2, 16),
    "awq": lambda: awq(16),
    "awq_columns": lambda: awq(-1),
}


def write(folder, names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or [*CASES, "gpt-oss"]:
        if name == "gpt-oss":
            gpt_oss(folder / name)
            continue
        torch.manual_seed(sum(name.encode()))
        tensors, config = CASES[name]()
        tensors = {key: value.contiguous() for key, value in tensors.items()}
        save_file(tensors, folder / f"{name}.safetensors", {"config": json.dumps(config)})


assert sys.argv[1] == "write"
write(pathlib.Path(sys.argv[2]), sys.argv[3:])
