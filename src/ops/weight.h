// Every use of a parameter is enclosed by acquire() and release.
//
// Forward, replay, input gradient and weight gradient each acquire the parameter for themselves.
// The provider does ZeRO-3's gathers and prefetches, repacking after an update, and frozen and
// quantized weights in these two calls, so layers and ops need no code for them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "device/device.h"
#include "kernels/kernels.h"
#include "ops/parameter.h"

namespace piton {

// A weight that work on the stream passed to acquire() may read. The destructor releases
// it: by then all work that reads the weight must have been enqueued.
class WeightUse {
 public:
  WeightUse() = default;
  WeightUse(WeightView view, std::shared_ptr<void> lease)
      : view_(std::move(view)), lease_(std::move(lease)) {}
  const WeightView& view() const { return view_; }
  const Tensor& rows() const { return view_.tensor; }  // of a kRows use

 private:
  WeightView view_;
  std::shared_ptr<void> lease_;
};

// Where a gradient goes. `overwrites`: nothing has been added to it in this step, and it is not
// zeroed: the next call has to write all of it.
struct GradientBuffer {
  Tensor sums;  // as WeightProvider::gradient()
  bool overwrites = false;
};

class WeightProvider {
 public:
  virtual ~WeightProvider() = default;

  // The weight in `form`. For kForward and kBackward the view may have another form: kRows if the
  // back end reads plain rows, kCodes if it reads the codes of a quantized weight. One-dimensional
  // parameters and embedding tables are acquired as kRows.
  virtual WeightUse acquire(Parameter& parameter, WeightForm form, Stream& stream) = 0;

  // Whether acquire() enqueues nothing and gives the same memory each time.
  virtual bool keeps_forms() const { return false; }

  // The buffer that a weight job adds the gradient to: fp32 (fp64 for fp64), local shape of the
  // parameter. Empty if the parameter is frozen: then there is no gradient to compute.
  virtual Tensor gradient(Parameter& parameter, Stream& stream) = 0;
  // The same for a call that can also overwrite it.
  virtual GradientBuffer gradient_buffer(Parameter& parameter, Stream& stream) {
    return {gradient(parameter, stream)};
  }

  // Reports that one contribution to the gradient has been enqueued on `stream`. The last expected
  // contribution starts the reduction over ranks.
  virtual void contribute(Parameter& parameter, Stream& stream) = 0;
};

// What the cache does with frozen parameters.
enum class FrozenForms : std::uint8_t {
  kPacked,  // packs them, as others
  kFewest,  // for training: does not pack what the back end reads about as fast as plain rows
  kRows,    // packs none, for the least memory; the numbers are the same
};

// The cache of packed weights, by parameter and form. All weight providers use it. If a parameter
// has a newer version than its packed form, it is packed again into the same memory. The version of
// a frozen parameter does not change, so it is packed once.
class PackedForms {
 public:
  PackedForms(Kernels& kernels, Arena& arena, FrozenForms frozen = FrozenForms::kPacked,
              MemoryKind kind = MemoryKind::kParameters)
      : kernels_(&kernels), arena_(&arena), frozen_(frozen), kind_(kind) {}

  // A view of the parameter in `form`, or of `rows` as kRows if the back end does not pack this
  // weight. `rows`: [out, in], the plain local rows of the parameter. They may be empty if this
  // version is packed already, or if the parameter is held as codes. Codes are returned as kCodes,
  // or expanded to rows if the back end does not read codes.
  WeightView get(Parameter& parameter, const Tensor& rows, WeightForm form, Stream& stream);
  // Frees all packed forms of the parameter. The next user of the memory waits for `used`.
  void drop(const Parameter& parameter, const Event& used);

 private:
  // `rows`, or for a parameter held as codes, newly expanded rows [out, in].
  Tensor plain_rows(const Parameter& parameter, const Tensor& rows, Stream& stream);

  struct Packed {
    Tensor tensor;
    std::uint64_t version = 0;
  };
  Kernels* kernels_;
  Arena* arena_;
  FrozenForms frozen_;
  MemoryKind kind_;
  std::map<std::pair<const Parameter*, WeightForm>, Packed> packed_;
};

// The weight for y = x W^T of `rows` rows of x, in the form that the back end reads fastest.
WeightUse acquire_forward(WeightProvider& weights, Parameter& parameter, std::int64_t rows,
                          const Kernels& kernels, Stream& stream);

// Weights that are always in memory: Parameter::value and Parameter::gradient. contribute() does
// nothing.
class ResidentWeights : public WeightProvider {
 public:
  ResidentWeights(Kernels& kernels, Arena& arena) : forms_(kernels, arena) {}
  WeightUse acquire(Parameter& parameter, WeightForm form, Stream& stream) override;
  Tensor gradient(Parameter& parameter, Stream& stream) override;
  void contribute(Parameter& parameter, Stream& stream) override;

 private:
  PackedForms forms_;
};

}  // namespace piton
