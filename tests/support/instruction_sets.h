// The instruction sets of parameterized tests of the cpu back end, and that of the others.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>
#include <string>
#include <tuple>

#include "base/platform.h"
#include "tensor/dtype.h"

namespace piton::test {

inline constexpr std::array kX86Sets = {"x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16",
                                        "amx"};
inline constexpr std::array kArmSets = {"neon"};
inline constexpr std::span<const char* const> kInstructionSets =
    kIsArm ? std::span<const char* const>(kArmSets) : std::span<const char* const>(kX86Sets);

// The set of tests that run on one: PITON_ISA, which the program reads too; "" is the machine's
// best.
inline std::string chosen_isa() {
  const char* isa = std::getenv("PITON_ISA");
  return isa == nullptr ? "" : isa;
}

// A set's name as part of a test's name.
inline std::string set_name(const ::testing::TestParamInfo<const char*>& info) {
  std::string text = info.param;
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

inline std::string set_and_dtype(
    const ::testing::TestParamInfo<std::tuple<const char*, DType>>& info) {
  return set_name({std::get<0>(info.param), info.index}) + "_" +
         std::string(name(std::get<1>(info.param)));
}

}  // namespace piton::test
