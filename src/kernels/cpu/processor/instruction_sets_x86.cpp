// Detects instruction sets with the compiler's cpuid builtins, which also ask the system.
#include <cpuid.h>

#include <array>

#include "base/levels_x86.h"
#include "kernels/cpu/processor/instruction_sets.h"

namespace piton::cpu {
namespace {

bool has_v4_bf16() {
  return has_x86_64_v4() && __builtin_cpu_supports("avx512bf16") &&
         __builtin_cpu_supports("avx512vnni");
}

// Leaf 7 of cpuid, edx: bit 22 bf16 products, bit 24 tiles. The system must also grant the state.
bool has_amx() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kBoth = 1U << 22 | 1U << 24;
  return has_v4_bf16() && (edx & kBoth) == kBoth && amx::permitted();
}

constexpr std::array<InstructionSet, 5> kSets{{
    {.isa = Isa::kV2,
     .name = "x86-64-v2",
     .description = "x86-64-v2",
     .is_here = has_x86_64_v2,
     .vector = v2::table,
     .panels = v2::panel_table,
     .codes = v2::codes_table,
     .dot = nullptr,
     .tiles = nullptr},
    {.isa = Isa::kV3,
     .name = "x86-64-v3",
     .description = "x86-64-v3",
     .is_here = has_x86_64_v3,
     .vector = v3::table,
     .panels = v3::panel_table,
     .codes = v3::codes_table,
     .dot = nullptr,
     .tiles = nullptr},
    {.isa = Isa::kV4,
     .name = "x86-64-v4",
     .description = "x86-64-v4",
     .is_here = has_x86_64_v4,
     .vector = v4::table,
     .panels = v4::panel_table,
     .codes = v4::codes_table,
     .dot = nullptr,
     .tiles = nullptr},
    {.isa = Isa::kV4Bf16,
     .name = "x86-64-v4-bf16",
     .description = "x86-64-v4 with bf16",
     .is_here = has_v4_bf16,
     .vector = v4::table,
     .panels = v4::panel_table,
     .codes = v4_bf16::codes_table,
     .dot = v4_bf16::dot_table,
     .tiles = nullptr},
    {.isa = Isa::kAmx,
     .name = "amx",
     .description = "x86-64-v4 with bf16 and AMX",
     .is_here = has_amx,
     .vector = v4::table,
     .panels = v4::panel_table,
     .codes = v4_bf16::codes_table,
     .dot = v4_bf16::dot_table,
     .tiles = amx::tile_table},
}};

}  // namespace

std::span<const InstructionSet> instruction_sets() { return kSets; }

std::string_view name_prefix() { return "x86-64-"; }

std::string_view missing_sets() { return "this processor is older than x86-64-v2, wanted SSE4.2"; }

}  // namespace piton::cpu
