// Detects the instruction set with the compiler's cpuid builtins, which also ask the system.
#include "kernels/cpu/isa.h"

#include <cpuid.h>

#include <array>

#include "base/error.h"

namespace piton::cpu {
namespace {

struct Entry {
  Isa isa;
  std::string_view name;
  std::string_view description;
};

constexpr std::string_view kLevels = "x86-64-";

constexpr std::array<Entry, 5> kEntries{{
    {Isa::kV2, "x86-64-v2", "x86-64-v2"},
    {Isa::kV3, "x86-64-v3", "x86-64-v3"},
    {Isa::kV4, "x86-64-v4", "x86-64-v4"},
    {Isa::kV4Bf16, "x86-64-v4-bf16", "x86-64-v4 with bf16"},
    {Isa::kAmx, "amx", "x86-64-v4 with bf16 and AMX"},
}};

bool has_v2() {
  return __builtin_cpu_supports("sse3") && __builtin_cpu_supports("ssse3") &&
         __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("sse4.2") &&
         __builtin_cpu_supports("popcnt");
}

bool has_v3() {
  return has_v2() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

bool has_v4() {
  return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

bool has_v4_bf16() {
  return has_v4() && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
}

// Leaf 7 of cpuid, edx: bit 22 bf16 products, bit 24 tiles. The system must also grant the state.
bool has_amx() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kBoth = 1U << 22 | 1U << 24;
  return has_v4_bf16() && (edx & kBoth) == kBoth && amx::permitted();
}

bool has(Isa isa) {
  __builtin_cpu_init();
  switch (isa) {
    case Isa::kV2:
      return has_v2();
    case Isa::kV3:
      return has_v3();
    case Isa::kV4:
      return has_v4();
    case Isa::kV4Bf16:
      return has_v4_bf16();
    case Isa::kAmx:
      return has_amx();
  }
  return false;
}

}  // namespace

std::string_view name(Isa isa) { return kEntries[static_cast<std::size_t>(isa)].name; }

std::string_view description(Isa isa) {
  return kEntries[static_cast<std::size_t>(isa)].description;
}

std::vector<Isa> isas_here() {
  std::vector<Isa> all;
  for (const Entry& entry : kEntries) {
    if (has(entry.isa)) all.push_back(entry.isa);
  }
  return all;
}

Isa best_isa() {
  if (const std::vector<Isa> all = isas_here(); !all.empty()) return all.back();
  throw Error(Fault::kUsage,
              "cpu kernels: this processor is older than x86-64-v2, wanted SSE4.2; use "
              "--kernels reference or another machine");
}

Isa find_isa(std::string_view name) {
  if (name.empty()) return best_isa();
  for (const Entry& entry : kEntries) {
    const bool in_short =
        entry.name.starts_with(kLevels) && entry.name.substr(kLevels.size()) == name;
    if (entry.name != name && !in_short) continue;
    if (!has(entry.isa)) {
      throw Error(Fault::kUsage,
                  "cpu kernels: this machine lacks the instruction set: got {}, has {}; leave it "
                  "out to use the best",
                  name, cpu::name(best_isa()));
    }
    return entry.isa;
  }
  throw Error(Fault::kUsage,
              "cpu kernels: unknown instruction set: got \"{}\", wanted x86-64-v2, x86-64-v3, "
              "x86-64-v4, x86-64-v4-bf16 or amx",
              name);
}

const VectorTable& vector_table(Isa isa) {
  switch (isa) {
    case Isa::kV2:
      return v2::table();
    case Isa::kV3:
      return v3::table();
    case Isa::kV4:
    case Isa::kV4Bf16:
    case Isa::kAmx:
      break;
  }
  return v4::table();
}

const PanelTable& panel_table(Isa isa) {
  switch (isa) {
    case Isa::kV2:
      return v2::panel_table();
    case Isa::kV3:
      return v3::panel_table();
    case Isa::kV4:
    case Isa::kV4Bf16:
    case Isa::kAmx:
      break;
  }
  return v4::panel_table();
}

const CodesTable& codes_table(Isa isa) {
  switch (isa) {
    case Isa::kV2:
      return v2::codes_table();
    case Isa::kV3:
      return v3::codes_table();
    case Isa::kV4:
      return v4::codes_table();
    case Isa::kV4Bf16:
    case Isa::kAmx:
      break;
  }
  return v4_bf16::codes_table();
}

const DotTable* dot_table(Isa isa) {
  return isa == Isa::kV4Bf16 || isa == Isa::kAmx ? &v4_bf16::dot_table() : nullptr;
}

const TileTable* tile_table(Isa isa) { return isa == Isa::kAmx ? &amx::tile_table() : nullptr; }

}  // namespace piton::cpu
