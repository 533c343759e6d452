#include <array>

#include "kernels/cpu/processor/instruction_sets.h"

namespace piton::cpu {
namespace {

// Every 64-bit ARM processor has NEON.
constexpr std::array<InstructionSet, 1> kSets{{
    {.isa = Isa::kNeon,
     .name = "neon",
     .description = "ARM with NEON",
     .is_here = [] { return true; },
     .vector = neon::table,
     .panels = neon::panel_table,
     .codes = neon::codes_table,
     .dot = nullptr,
     .tiles = nullptr},
}};

}  // namespace

std::span<const InstructionSet> instruction_sets() { return kSets; }

std::string_view name_prefix() { return ""; }

std::string_view missing_sets() { return "this processor has no NEON"; }

}  // namespace piton::cpu
