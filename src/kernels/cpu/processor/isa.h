// Instruction sets: which this machine has, and the table of loops compiled for each.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/cpu/amx/table.h"
#include "kernels/cpu/dot/table.h"
#include "kernels/cpu/vector/codes.h"
#include "kernels/cpu/vector/panels.h"
#include "kernels/cpu/vector/table.h"

namespace piton::cpu {

// Levels of the x86-64 psABI; then v4 with bf16 dot products (AVX512_BF16) and 16-bit integer ones
// (AVX512_VNNI); then with bf16 tile products too (AMX). On 64-bit ARM: NEON.
enum class Isa { kV2, kV3, kV4, kV4Bf16, kAmx, kNeon };

std::string_view name(Isa isa);         // "x86-64-v4-bf16", as flags spell it
std::string_view description(Isa isa);  // "x86-64-v4 with bf16", as logs say it

// All that this machine can run, the least first; none on x86-64 below v2.
std::vector<Isa> isas_here();

// The best that this machine (processor and system) can run. Throws Error(kUsage) below v2.
Isa best_isa();

// Finds a set by its name, "x86-64-v3" or "v3"; "" is best_isa(). Throws Error(kUsage) if the name
// is unknown or the machine lacks the set.
Isa find_isa(std::string_view name);

const VectorTable& vector_table(Isa isa);
const PanelTable& panel_table(Isa isa);
const CodesTable& codes_table(Isa isa);

// Null if the set has no bf16 dot product.
const DotTable* dot_table(Isa isa);

// Null if the set has no tiles.
const TileTable* tile_table(Isa isa);

}  // namespace piton::cpu
