// Options of products in FP8 (kernels/linear.h), with the flags of Megatron-core.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/options/options.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "model/layout.h"

namespace piton {

struct Float8Options {
  std::string format;  // "": none
  std::string recipe = "tensorwise";
  bool ends_in_bf16 = false;
  std::optional<std::int64_t> first_in_bf16, last_in_bf16;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"fp8-format",
             "multiply the linears of layers in FP8, with --bf16: e4m3; hybrid: e5m2 for the "
             "gradients of their outputs, e4m3 for the rest",
             {.choices = {"e4m3", "hybrid"}}},
      format);
    v(Option{"fp8-recipe",
             "scales of FP8, from the numbers of the product itself: tensorwise: one for each "
             "factor; blockwise: for 128 numbers along the sum, for 128 x 128 of a weight",
             {.choices = {"tensorwise", "blockwise"}}},
      recipe);
    v(Option{"first-last-layers-bf16", "--fp8-format: leave the first and the last layers in bf16"},
      ends_in_bf16);
    v(Option{"num-layers-at-start-in-bf16",
             "how many of the first layers (of each stack) that are (default: 1)"},
      first_in_bf16);
    v(Option{"num-layers-at-end-in-bf16",
             "how many of the last layers (of each stack) that are (default: 1)"},
      last_in_bf16);
  }

  bool given() const { return !format.empty(); }
  // For a model, whose weights are held as codes or not. Throws Error(kUsage) that names the flag.
  Float8Rules rules(const ModelConfig& model, bool codes) const;
};

// Throws Error(kUsage) if such kernels have no products in FP8.
void check_float8(const Kernels& kernels, const Float8Rules& rules);

// A line for a log of a run on this device. "": none.
std::string about_float8(const Float8Options& options, const Device& device);

}  // namespace piton
