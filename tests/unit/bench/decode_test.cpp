// What a step of decoding must read.
#include "bench/decode.h"

#include <gtest/gtest.h>

#include "model/families.h"
#include "support/host_machine.h"

namespace piton {
namespace {

double bytes_of(std::int64_t choices, std::int64_t samples, const std::string& quantize = "") {
  test::HostMachine host;
  ModelConfig model = preset("mixtral-tiny");
  model.layers = 1;
  model.experts = {.experts = 4, .choices = choices};
  return bench_decode(host.machine, {.model = model,
                                     .samples = samples,
                                     .context = 2,
                                     .tokens = 1,
                                     .rounds = 1,
                                     .quantize = quantize})
      .bytes;
}

TEST(DecodeBench, CountsTheExpertsThatAreChosen) {
  const ModelConfig model = preset("mixtral-tiny");
  const auto expert =
      static_cast<double>(3 * model.hidden * model.ffn_hidden * size_bytes(model.dtype));
  const double all = bytes_of(4, 1);
  EXPECT_DOUBLE_EQ(all - bytes_of(1, 1), 3 * expert);
  // Each of two samples leaves three quarters, so both leave 9/16 of the four.
  EXPECT_DOUBLE_EQ(bytes_of(4, 2) - bytes_of(1, 2), 9.0 / 16 * 4 * expert);
  // Codes of whole rows have a byte a weight and a scale a row.
  const auto scales = static_cast<double>(4 * (2 * model.ffn_hidden + model.hidden));
  EXPECT_DOUBLE_EQ(bytes_of(4, 1, "int8") - bytes_of(1, 1, "int8"),
                   3 * (expert / static_cast<double>(size_bytes(model.dtype)) + scales));
}

}  // namespace
}  // namespace piton
