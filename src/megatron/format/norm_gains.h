// Gains of the norm inside the gated delta rule. Where the gains of a model are around 1
// (--apply-layernorm-1p), Megatron-core has them so in every norm and stores gain - 1. Hugging
// Face's models, and canonical tensors, store this one as it is.
//
// Source: megatron/core/ssm/gated_delta_net.py of Megatron-core 0.16, whose out_norm is made by the
// same configuration as the other norms.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "model/config.h"

namespace piton {

// True for a canonical tensor that Megatron's files hold as gain - 1, and canonical ones do not.
bool is_shifted_gain(const ModelConfig& model, std::string_view name);

// Numbers that `read` gives, rounded to a type, and what is added to each of them.
struct ShiftedRun {
  std::function<void(DType dtype, std::byte* dst)> read;
  std::int64_t size = 0;
  float shift = 0;
  DType through = DType::kF32;
};
// dst [run.size] = the sums as `dtype`.
void read_shifted(const ShiftedRun& run, DType dtype, std::byte* dst);

// A source with `shift` added to these gains.
class ShiftedGains final : public TensorSource {
 public:
  // `through`: the type that the values of `source` are rounded to before; none: that of the
  // tensor. Both must outlive it.
  ShiftedGains(TensorSource& source, const ModelConfig& model, float shift,
               std::optional<DType> through = std::nullopt);

  std::string where() const override { return source_.where(); }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override {
    return source_.tensors(kind);
  }
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override;

 private:
  TensorSource& source_;
  const ModelConfig& model_;
  float shift_;
  std::optional<DType> through_;
};

}  // namespace piton
