// The seam of the mathematics: every back end executes these calls, and nothing else.
//
// A call is checked here, once, so that back ends receive only valid input and messages are equal
// on all of them. Back ends: kernels/reference (plain loops; the specification and the oracle),
// kernels/cpu, kernels/cuda, kernels/meta (computes nothing, counts). A new call is a struct, a
// line in KernelCall, and a function of the same name in each back end: the compiler finds what is
// missing.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "device/device.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/linear.h"
#include "kernels/loss.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/rotary.h"

namespace piton {

using KernelCall =
    std::variant<LinearForward, LinearBackwardInput, LinearBackwardWeight, PackWeight, ExpandWeight,
                 NormForward, NormBackward, Rotary, AttentionForward, AttentionBackward,
                 CacheAppend, ActivationForward, ActivationBackward, DropoutAddForward,
                 DropoutAddBackward, EmbeddingForward, EmbeddingBackward, LossStatistics,
                 LossCombine, LossBackward, Copy, Add, AdamwUpdate, SgdUpdate, SquareSums,
                 BeginUpdate>;

std::string_view name(const KernelCall& call);
void check(const KernelCall& call);
double flops(const KernelCall& call);
// Bytes read plus bytes written, each tensor once.
std::int64_t bytes_moved(const KernelCall& call);

// visitor(std::string_view name, const Tensor& tensor, Access access) for every tensor that is
// given.
template <typename Call, typename Visitor>
void for_each_tensor(Call& call, Visitor&& visitor) {
  std::visit(
      [&](auto& one) {
        one.tensors(one, [&](std::string_view name, auto& tensor, Access access) {
          if (tensor.defined()) visitor(name, tensor, access);
        });
      },
      call);
}

class Kernels {
 public:
  virtual ~Kernels() = default;

  // Checks the call and puts it on `stream`.
  void run(const KernelCall& call, Stream& stream) {
    check(call);
    submit(call, stream);
  }

  virtual std::string name() const = 0;  // "cpu: x86-64-v4 with bf16, oneDNN 2.6.3"

  // Size of a weight [out, in] in a packed form; 0 where this back end wants plain rows for it.
  virtual std::int64_t packed_bytes(WeightForm form, std::int64_t out, std::int64_t in,
                                    DType dtype) const = 0;

  // Whether linears take a weight as kCodes. Where not, ExpandWeight gives the rows.
  virtual bool reads_codes() const { return false; }

  // Linears are computed in tiles of this many rows: cut slices at multiples of it.
  virtual std::int64_t row_tile() const = 0;

 private:
  virtual void submit(const KernelCall& call, Stream& stream) = 0;
};

}  // namespace piton
