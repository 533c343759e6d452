// The bracket around every use of a parameter: acquire ... release.
//
// Forward, replay, input-gradient job and weight-gradient job each take their own use. All of
// ZeRO-3's gather and prefetch, repacking after an update, freezing and quantised weights happen
// inside this bracket; no layer and no op knows of them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "device/device.h"
#include "kernels/kernels.h"
#include "ops/parameter.h"

namespace piton {

// A weight that may be read by work put on the stream it was acquired for. Releasing it (the
// destructor) says that all such work is on the stream by now.
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

class WeightProvider {
 public:
  virtual ~WeightProvider() = default;

  // `form` kForward or kBackward may come back as kRows where the back end wants plain rows.
  // One-dim parameters and tables are acquired as kRows.
  virtual WeightUse acquire(Parameter& parameter, WeightForm form, Stream& stream) = 0;

  // Where a weight-gradient job adds to: fp32 (fp64), local shape. Empty if the parameter is
  // frozen: then the job is not to be done.
  virtual Tensor gradient(Parameter& parameter, Stream& stream) = 0;

  // One contribution to the gradient is on `stream`. The last one that is expected of a step
  // starts the parameter's reduction.
  virtual void contribute(Parameter& parameter, Stream& stream) = 0;
};

// The one cache of packed forms, by parameter and form: of resident weights, of gathered ones, and
// of those that are only read. A newer version of the values repacks into the same memory; a
// parameter whose version stays (a frozen one) is packed once.
class PackedForms {
 public:
  PackedForms(Kernels& kernels, Arena& arena, MemoryKind kind = MemoryKind::kParameters)
      : kernels_(&kernels), arena_(&arena), kind_(kind) {}

  // `rows`: the parameter's plain local rows, of which it comes as kRows where the back end packs
  // nothing. Empty rows are legal where this version is packed already, and where the parameter is
  // held as codes: those come as kCodes, or are expanded where the back end does not read them.
  WeightView get(Parameter& parameter, const Tensor& rows, WeightForm form, Stream& stream);
  // Gives the memory of all its forms back; what `used` (if any) still does with it is waited for.
  void drop(const Parameter& parameter, const Event& used);

 private:
  // Of a parameter held as codes: rows made for this use; else `rows`.
  Tensor plain_rows(const Parameter& parameter, const Tensor& rows, Stream& stream);

  struct Packed {
    Tensor tensor;
    std::uint64_t version = 0;
  };
  Kernels* kernels_;
  Arena* arena_;
  MemoryKind kind_;
  std::map<std::pair<const Parameter*, WeightForm>, Packed> packed_;
};

// Weights that stay where they are: Parameter::value and ::gradient. contribute() does nothing.
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
