#!/usr/bin/env python3
"""Matrices of whole numbers by the library compressed-tensors.

    python tools/oracle/compressed_tensors_files.py write tests/golden/compressed_tensors
    python tools/oracle/compressed_tensors_files.py check FOLDER VALUES

write: NAME.safetensors with one matrix, "m.weight_packed" and so on, and "values", what the library makes of it;
NAME.json with the configuration. check: FOLDER by `piton quantize`, VALUES the folder of `piton convert --to hf`
of it: every matrix must have the values that the library gives, and its codes the bytes that it packs.

Packages: compressed-tensors, torch, safetensors.
"""
import json
import pathlib
import sys

import compressed_tensors
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import load_file, save_file

CASES = {  # format, bits, strategy, group, symmetric, type of the scales
    "int4_group": ("pack-quantized", 4, "group", 8, True, torch.bfloat16),
    "int4_channel_zeros": ("pack-quantized", 4, "channel", None, False, torch.float32),
    "int8_group_zeros": ("pack-quantized", 8, "group", 8, False, torch.float16),
    "int8_tensor": ("pack-quantized", 8, "tensor", None, True, torch.float32),
    "int8_tensor_zeros": ("pack-quantized", 8, "tensor", None, False, torch.float32),
    "int8_channel_plain": ("int-quantized", 8, "channel", None, True, torch.float32),
    "int8_channel_plain_zeros": ("int-quantized", 8, "channel", None, False, torch.bfloat16),
}


def ranges(weight, strategy, group):
    if strategy == "tensor":
        return weight.min().reshape(1), weight.max().reshape(1)
    if strategy == "channel":
        return weight.min(1, keepdim=True).values, weight.max(1, keepdim=True).values
    parts = weight.reshape(weight.shape[0], -1, group)
    return parts.min(2).values, parts.max(2).values


def write(folder):
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(5)
    for name, (layout, bits, strategy, group, symmetric, dtype) in CASES.items():
        weight = torch.randn(11, 24) * 0.1
        args = QuantizationArgs(num_bits=bits, strategy=strategy, group_size=group, symmetric=symmetric)
        scheme = QuantizationScheme(targets=["Linear"], weights=args, format=layout)
        low, high = ranges(weight, strategy, group)
        scale, zero = calculate_qparams(low, high, args)
        state = {"weight": weight.to(dtype), "weight_scale": scale.to(dtype)}
        if not symmetric:
            state["weight_zero_point"] = zero.round().to(torch.int8)
        compressor = BaseCompressor.get_value_from_registry(layout)
        packed = compressor.compress(state, scheme)
        values = compressor.decompress(packed, scheme)["weight"]
        tensors = {f"m.{key}": value.contiguous() for key, value in packed.items()}
        exact = dict(packed)  # values of the scales in fp32, which are not rounded to the type of the model
        exact["weight_scale"] = packed["weight_scale"].float()
        tensors["values"] = compressor.decompress(exact, scheme)["weight"].contiguous()
        assert torch.equal(tensors["values"].to(dtype), values) or dtype != torch.float32
        save_file(tensors, folder / f"{name}.safetensors",
                  {"by": f"compressed-tensors {compressed_tensors.__version__}, torch {torch.__version__}"})
        config = QuantizationConfig(config_groups={"group_0": scheme}, format=layout, ignore=["lm_head"],
                                    quantization_status="compressed")
        text = json.dumps({"quantization_config": json.loads(config.model_dump_json())}, indent=1)
        (folder / f"{name}.json").write_text(text + "\n")


def all_tensors(folder):
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors.update(load_file(path))
    return tensors


def check(folder, values):
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32

    said = json.loads((folder / "config.json").read_text())["quantization_config"]
    config = QuantizationConfig.model_validate(said)
    scheme = config.config_groups["group_0"]
    compressor = BaseCompressor.get_value_from_registry(config.format)
    stored, wanted = all_tensors(folder), all_tensors(values)
    modules = [name.removesuffix(".weight_packed") for name in stored if name.endswith(".weight_packed")]
    assert modules
    for module in modules:
        prefix = module + "."
        state = {name.removeprefix(prefix): t for name, t in stored.items() if name.startswith(prefix + "weight_")}
        state["weight_scale"] = state["weight_scale"].float()
        codes = unpack_from_int32(state["weight_packed"], scheme.weights.num_bits, state["weight_shape"])
        assert torch.equal(pack_to_int32(codes, scheme.weights.num_bits), state["weight_packed"]), module
        got = compressor.decompress(state, scheme)["weight"]
        assert torch.equal(got, wanted[module + ".weight"]), module
    print(f"{len(modules)} matrices equal those of compressed-tensors {compressed_tensors.__version__}")


if sys.argv[1] == "write":
    write(pathlib.Path(sys.argv[2]))
else:
    check(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
