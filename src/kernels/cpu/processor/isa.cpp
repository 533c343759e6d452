#include "kernels/cpu/processor/isa.h"

#include <fmt/format.h>

#include "base/error.h"
#include "kernels/cpu/processor/instruction_sets.h"

namespace piton::cpu {
namespace {

// Of this build's processors.
const InstructionSet& set_of(Isa isa) {
  for (const InstructionSet& set : instruction_sets()) {
    if (set.isa == isa) return set;
  }
  PITON_ASSERT(false, "instruction set {} of other processors", static_cast<int>(isa));
}

// "a, b or c".
std::string names() {
  const std::span<const InstructionSet> sets = instruction_sets();
  std::string text(sets.front().name);
  for (std::size_t i = 1; i < sets.size(); ++i)
    text += fmt::format("{}{}", i + 1 < sets.size() ? ", " : " or ", sets[i].name);
  return text;
}

}  // namespace

std::string_view name(Isa isa) { return set_of(isa).name; }

std::string_view description(Isa isa) { return set_of(isa).description; }

std::vector<Isa> isas_here() {
  std::vector<Isa> all;
  for (const InstructionSet& set : instruction_sets()) {
    if (set.is_here()) all.push_back(set.isa);
  }
  return all;
}

Isa best_isa() {
  if (const std::vector<Isa> all = isas_here(); !all.empty()) return all.back();
  throw Error(Fault::kUsage, "cpu kernels: {}; use --kernels reference or another machine",
              missing_sets());
}

Isa find_isa(std::string_view name) {
  if (name.empty()) return best_isa();
  for (const InstructionSet& set : instruction_sets()) {
    const bool in_short =
        set.name.starts_with(name_prefix()) && set.name.substr(name_prefix().size()) == name;
    if (set.name != name && !in_short) continue;
    if (!set.is_here()) {
      throw Error(Fault::kUsage,
                  "cpu kernels: this machine lacks the instruction set: got {}, has {}; leave it "
                  "out to use the best",
                  name, cpu::name(best_isa()));
    }
    return set.isa;
  }
  throw Error(Fault::kUsage, "cpu kernels: unknown instruction set: got \"{}\", wanted {}", name,
              names());
}

const VectorTable& vector_table(Isa isa) { return set_of(isa).vector(); }

const PanelTable& panel_table(Isa isa) { return set_of(isa).panels(); }

const CodesTable& codes_table(Isa isa) { return set_of(isa).codes(); }

const DotTable* dot_table(Isa isa) {
  const InstructionSet& set = set_of(isa);
  return set.dot == nullptr ? nullptr : &set.dot();
}

const TileTable* tile_table(Isa isa) {
  const InstructionSet& set = set_of(isa);
  return set.tiles == nullptr ? nullptr : &set.tiles();
}

}  // namespace piton::cpu
