// The instruction sets of parameterized tests of the cpu back end.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <tuple>

#include "tensor/dtype.h"

namespace piton::test {

inline constexpr std::array kInstructionSets = {"x86-64-v2", "x86-64-v3", "x86-64-v4",
                                                "x86-64-v4-bf16", "amx"};

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
