#!/bin/sh
# The bars of kernels on this machine, piton in turns with PyTorch: products, attention, training steps.
#
#   bench/compare/bars.sh [PYTHON]        PYTHON has torch and transformers; default: python3
#
# Wants a built piton (build/piton) and a machine on which nothing else runs; takes about 15 minutes on two
# cores. Every run writes bench/results/ and prints one line for each bar. AVX2 is forced on both sides at the
# end, fp32 steps included.
set -eu
cd "$(dirname "$0")/../.."
python=${1:-python3}
results=bench/results/$(date -u +%F)

echo "products, bf16 and fp32"
"$python" bench/compare/products.py --model gpt2-124m --rows 4096 --dtype bf16
"$python" bench/compare/products.py --model gpt2-124m --rows 4096 --dtype fp32 --rounds 5
echo "attention, forward and backward"
"$python" bench/compare/products.py --attention 4096 --dtype bf16
"$python" bench/compare/products.py --attention 256 --dtype bf16
echo "training steps"
"$python" bench/compare/train.py --model gpt2-124m --seq-length 256 --variants weights-compile autocast-compile
"$python" bench/compare/train.py --model gpt2-124m --seq-length 1024 --variants weights-compile --rounds 5
"$python" bench/compare/train.py --model llama-134m --seq-length 1024 --variants weights-compile --rounds 5
"$python" bench/compare/train.py --model gpt2-124m --seq-length 256 --dtype fp32 --variants weights-compile --rounds 5
echo "the same in AVX2"
export PITON_ISA=x86-64-v3 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2
"$python" bench/compare/products.py --model gpt2-124m --rows 1024 --dtype fp32 --rounds 5 \
  --output "$results-products-gpt2-124m-1024-fp32-avx2.json"
"$python" bench/compare/products.py --model gpt2-124m --rows 1024 --dtype bf16 --rounds 2 \
  --output "$results-products-gpt2-124m-1024-bf16-avx2.json"
"$python" bench/compare/train.py --model gpt2-124m --seq-length 256 --dtype fp32 --variants weights --rounds 3 \
  --output "$results-train-gpt2-124m-fp32-4x256-avx2.json"
# No step in bf16: without AVX-512 PyTorch takes minutes for one.
