// A model without its layers that predict later tokens, for formats that do not have them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/load_values.h"
#include "checkpoint/tensor_source.h"

namespace piton {

class WithoutLaterLayers final : public TensorSource {
 public:
  explicit WithoutLaterLayers(std::unique_ptr<TensorSource> source) : source_(std::move(source)) {}

  std::string where() const override { return source_->where(); }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override {
    std::vector<CanonicalTensor> all = source_->tensors(kind);
    std::erase_if(all, [](const CanonicalTensor& one) { return predicts_later_tokens(one.name); });
    return all;
  }
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override {
    source_->read(name, run, dtype, dst);
  }
  std::optional<CodeFormat> stored_format(const std::string& name) const override {
    return source_->stored_format(name);
  }
  void read_codes(const std::string& name, const StoredRow& row, const CodedRow& to) override {
    source_->read_codes(name, row, to);
  }
  bool reads_in_parallel() const override { return source_->reads_in_parallel(); }

 private:
  std::unique_ptr<TensorSource> source_;
};

}  // namespace piton
