// Products with weights held as codes, where 16-bit products are added by one instruction
// (AVX512_VNNI): every processor with bf16 dot products has it, and isa.cpp asks for it.
#define PITON_ISA v4_bf16
#define PITON_VECTOR_BYTES 64
#include "kernels/cpu/vector/codes_loops.h"
