// A source of tensors under other names: each has a prefix in addition. One of several adapters of
// a model is read through it (Adapters::choices of nn/adapters.h).
#pragma once

#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"

namespace piton {

class PrefixedSource final : public TensorSource {
 public:
  // `source` must outlive it.
  PrefixedSource(TensorSource& source, std::string prefix)
      : source_(source), prefix_(std::move(prefix)) {}

  std::string where() const override { return source_.where(); }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override {
    std::vector<CanonicalTensor> all = source_.tensors(kind);
    for (CanonicalTensor& tensor : all) tensor.name = prefix_ + tensor.name;
    return all;
  }
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override {
    source_.read(own_name(name), run, dtype, dst);
  }
  bool reads_in_parallel() const override { return source_.reads_in_parallel(); }

 private:
  std::string own_name(const std::string& name) const {
    PITON_ASSERT(name.starts_with(prefix_), "{} without {}", name, prefix_);
    return name.substr(prefix_.size());
  }

  TensorSource& source_;
  std::string prefix_;
};

}  // namespace piton
