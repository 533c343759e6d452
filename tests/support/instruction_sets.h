// The instruction sets that a test of the cpu back end goes through.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

namespace piton::test {

inline constexpr std::array kInstructionSets = {"x86-64-v2", "x86-64-v3", "x86-64-v4",
                                                "x86-64-v4-bf16", "amx"};

// A set's name as part of a test's name.
inline std::string set_name(const ::testing::TestParamInfo<const char*>& info) {
  std::string text = info.param;
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

}  // namespace piton::test
