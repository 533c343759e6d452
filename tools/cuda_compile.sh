#!/usr/bin/env bash
# cuda_compile.sh [CAPABILITY]: compiles the kernels of GPUs for one compute capability (90) to code that a GPU runs,
# without a GPU and without linking, in build-nvcc. A spilled register is an error. With cuobjdump of the CUDA toolkit
# it prints the table of tools/cuda_resources.py, and fails if that lists kernels that are no more.
set -eu
cd "$(dirname "$0")/.."
capability=${1:-90}
cmake -G Ninja -B build-nvcc -DCMAKE_BUILD_TYPE=Release -DPITON_CUDA=ON -DPITON_MPI=OFF \
  -DCMAKE_CUDA_ARCHITECTURES="$capability-real" >/dev/null
cmake --build build-nvcc --target piton_kernels_cuda
if command -v "${CUOBJDUMP:=cuobjdump}" >/dev/null; then
  tools/cuda_resources.py --build build-nvcc --arch "$capability" --cuobjdump "$CUOBJDUMP"
else
  echo "cuda_compile: no cuobjdump: the table of kernels is not made"
fi
