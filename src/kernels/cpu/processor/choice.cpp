#include "kernels/cpu/processor/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

namespace piton::cpu {
namespace {

struct Known {
  std::string_view vendor;
  int first_family;
  int last_family;
  bool dot;
};

// AMD: Zen 4 reaches 470 GFLOP/s on two cores with vdpbf16ps and 236 in fp32 (Zen 5: the same
// ratio). Intel: 130 and 250 on a Xeon with AMX.
constexpr std::array<Known, 2> kKnown{{
    {"AuthenticAMD", 0x19, 0x1A, true},
    {"GenuineIntel", 6, 6, false},
}};

// Ratio from which one way counts as faster: well above the noise of a measurement.
constexpr double kClearly = 1.25;

std::optional<bool> known_choice(const Processor& processor) {
  for (const Known& known : kKnown) {
    if (known.vendor == processor.vendor && processor.family >= known.first_family &&
        processor.family <= known.last_family) {
      return known.dot;
    }
  }
  return std::nullopt;
}

double speed_of(double (*loop)(std::int64_t rounds)) {
  constexpr std::int64_t kRounds = 2'000;  // some 5 us
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const double work = loop(kRounds);
  return work / std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

// The best of many turns, so that a preempted thread does not count.
ProductSpeeds measured_speeds(Isa isa) {
  constexpr int kTurns = 60;
  ProductSpeeds speeds;
  for (int turn = 0; turn < kTurns; ++turn) {
    speeds.fma = std::max(speeds.fma, speed_of(vector_table(isa).fma_loop));
    speeds.dot = std::max(speeds.dot, speed_of(dot_table(isa)->loop));
  }
  return speeds;
}

ProductChoice choose_products(const Processor& processor, const ProductSpeeds& speeds) {
  const std::optional<bool> known = known_choice(processor);
  const bool faster = speeds.dot >= kClearly * speeds.fma;
  const bool slower = speeds.fma >= kClearly * speeds.dot;
  const bool dot = known.value_or(faster);
  const std::string way = dot ? "by dot products" : "by fp32 multiply-adds";
  const std::string measured = fmt::format("{:.0f} GFLOP/s a core by dot products, {:.0f} in fp32",
                                           speeds.dot * 1e-9, speeds.fma * 1e-9);
  if (!known) {
    return {.dot = dot,
            .why = fmt::format("bf16 products {}, chosen by a measurement: {}", way, measured)};
  }
  return {.dot = dot,
          .why = fmt::format("bf16 products {}, chosen by a table for processors of this family "
                             "({} {}); measured here: {}{}",
                             way, processor.vendor, processor.family, measured,
                             (dot ? slower : faster) ? ", which says otherwise" : "")};
}

ProductChoice choose_products(Isa isa, bool forced) {
  if (isa != Isa::kV4Bf16 || forced) return {.dot = dot_table(isa) != nullptr, .why = {}};
  return choose_products(this_processor(), measured_speeds(isa));
}

}  // namespace piton::cpu
