// The instruction sets of this build's processors (instruction_sets_x86.cpp,
// instruction_sets_arm.cpp): how each is known, and the loops compiled for it.
#pragma once

#include <span>
#include <string_view>

#include "kernels/cpu/processor/isa.h"

namespace piton::cpu {

struct InstructionSet {
  Isa isa;
  std::string_view name;
  std::string_view description;
  bool (*is_here)();  // whether this machine, processor and system, can run it
  const VectorTable& (*vector)();
  const PanelTable& (*panels)();
  const CodesTable& (*codes)();
  const DotTable& (*dot)();     // null: no bf16 dot products
  const TileTable& (*tiles)();  // null: no tiles
};

// The least first.
std::span<const InstructionSet> instruction_sets();

// A beginning of names that may be left out; "": none.
std::string_view name_prefix();

// What is wrong with a machine that has none of them.
std::string_view missing_sets();

}  // namespace piton::cpu
