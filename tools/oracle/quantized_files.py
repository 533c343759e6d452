#!/usr/bin/env python3
"""Quantized matrices as published Hugging Face folders have them, and their values.

    python tools/oracle/quantized_files.py write tests/golden/quantized [NAME...]

Writes NAME.safetensors with one matrix "m.weight" in the tensors of its format, and "values", fp32, what its library
makes of it; NAME.json with the configuration. Who gives the values:

    fp8_*     Transformers (integrations/finegrained_fp8.py, Fp8Dequantize); ragged blocks, which that refuses:
              weight_dequant of DeepSeek-V3 (inference/kernel.py), in PyTorch
    float_*   compressed-tensors (compressors/naive_quantized)
    bnb_*     bitsandbytes, on the CPU; in fp32 where Piton holds codes

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
}


def write(folder, names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or CASES:
        torch.manual_seed(sum(name.encode()))
        tensors, config = CASES[name]()
        tensors = {key: value.contiguous() for key, value in tensors.items()}
        save_file(tensors, folder / f"{name}.safetensors")
        (folder / f"{name}.json").write_text(json.dumps(config, indent=1) + "\n")


assert sys.argv[1] == "write"
write(pathlib.Path(sys.argv[2]), sys.argv[3:])
