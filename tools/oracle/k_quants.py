"""Blocks of ggml's formats Q4_K, Q5_K and Q6_K.

  python tools/oracle/k_quants.py LLAMA.CPP/ggml tests/golden/gguf/k_blocks.safetensors     (gguf 0.19, llama.cpp of
                                                                                             llama-cpp-python 0.3.36)

Compiles ggml-quants.c of llama.cpp without fused multiply-add and writes what quantize_row_q4_K_ref and so on make of
numbers. The values of the blocks are those of the `gguf` package, and are compared with those of dequantize_row_q4_K.
"""
import ctypes
import pathlib
import subprocess
import sys
import tempfile

import numpy
import gguf
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import save_file

BYTES = {Type.Q4_K: 144, Type.Q5_K: 176, Type.Q6_K: 210}
# What ggml-quants.c needs of the rest of ggml, for messages only.
REST = """
#include <stdlib.h>
#include <stddef.h>
#include <stdint.h>
void ggml_abort(const char* file, int line, const char* text, ...) { abort(); }
size_t ggml_row_size(int type, int64_t n) { return 0; }
size_t ggml_type_size(int type) { return 0; }
const char* ggml_type_name(int type) { return ""; }
"""


def library(ggml, folder):
    (folder / "rest.c").write_text(REST)
    built = folder / "quants.so"
    subprocess.run(["cc", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-I", ggml / "include", "-I", ggml / "src",
                    ggml / "src/ggml-quants.c", folder / "rest.c", "-lm", "-o", built], check=True)
    return ctypes.CDLL(str(built))


def numbers():
    generator = numpy.random.default_rng(29)
    x = generator.standard_normal((10, 256)).astype(numpy.float32)
    x[1] = x[1] * 0.02 + numpy.repeat(generator.standard_normal(8) * 0.05, 32)  # groups around other middles
    x[2] *= 1e-6
    x[3] *= 1e3
    x[4] = 0
    x[4, 64:96] = 0.25  # groups that are all alike
    x[4, 96:128] = -0.25
    x[5] = numpy.abs(x[5]) + 1  # the least is above 0
    x[6] = numpy.linspace(-1, 1, 256)
    x[7] = numpy.where(numpy.arange(256) % 2, 3.5, -3.5)
    x[8] *= 1e-9  # d becomes 0
    x[9, ::7] *= 40  # some far away
    return x


def main():
    ggml, out = pathlib.Path(sys.argv[1]), sys.argv[2]
    x = numbers()
    tensors = {"values": x}
    with tempfile.TemporaryDirectory() as folder:
        lib = library(ggml, pathlib.Path(folder))
        for type, size in BYTES.items():
            name = type.name.lower().replace("_k", "_K")
            data = numpy.zeros((len(x), size), numpy.uint8)
            getattr(lib, f"quantize_row_{name}_ref")(x.ctypes.data_as(ctypes.c_void_p), data.ctypes.data_as(ctypes.c_void_p),
                                                     ctypes.c_int64(x.size))
            values = gguf.quants.dequantize(data, type).astype(numpy.float32)
            own = numpy.zeros_like(values)
            getattr(lib, f"dequantize_row_{name}")(data.ctypes.data_as(ctypes.c_void_p), own.ctypes.data_as(ctypes.c_void_p),
                                                   ctypes.c_int64(x.size))
            assert (own == values).all(), type
            tensors[type.name] = data
            tensors[type.name + ".values"] = values
            print(type.name, "largest error", numpy.abs(values - x)[0].max())
    save_file(tensors, out)


main()
