#include "model_files/label_base.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/error.h"
#include "model/canonical_tensors.h"
#include "model/label_head.h"

namespace piton {
namespace {

bool is_of_other_head(const std::string& name) {
  return name.starts_with("head.") || name.starts_with("pair_head.");
}

class LabelBase final : public TensorSource {
 public:
  // `added`: tensors that the model has not.
  LabelBase(std::unique_ptr<TensorSource> model, std::map<std::string, Shape> added)
      : model_(std::move(model)), added_(std::move(added)) {}

  std::string where() const override { return model_->where(); }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override {
    std::vector<CanonicalTensor> list = model_->tensors(kind);
    if (kind != TensorKind::kWeight) return list;
    std::erase_if(list, [](const CanonicalTensor& one) { return is_of_other_head(one.name); });
    for (const auto& [name, shape] : added_)
      list.push_back({.name = name, .dtype = DType::kF32, .shape = shape});
    std::ranges::sort(list, {}, &CanonicalTensor::name);
    return list;
  }
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override {
    if (!added_.contains(name)) return model_->read(name, run, dtype, dst);
    std::memset(dst, 0, static_cast<std::size_t>(run.size() * size_bytes(dtype)));
  }
  std::optional<CodeFormat> stored_format(const std::string& name) const override {
    return added_.contains(name) ? std::nullopt : model_->stored_format(name);
  }
  void read_codes(const std::string& name, const StoredRow& row, const CodedRow& to) override {
    model_->read_codes(name, row, to);
  }
  bool reads_in_parallel() const override { return model_->reads_in_parallel(); }

 private:
  std::unique_ptr<TensorSource> model_;
  std::map<std::string, Shape> added_;
};

}  // namespace

void make_classifier(OpenedModel& opened, const WantedLabels& wanted) {
  ModelConfig& model = opened.model;
  if (model.labels > 0) return;
  if (model.encoder_decoder) {
    throw Error(Fault::kData,
                "{}: is an encoder with a decoder, wanted a decoder or, for labels, an encoder",
                opened.name);
  }
  set_labels(model, wanted);
  std::map<std::string, Shape> added;
  std::vector<std::string> there;
  for (const CanonicalTensor& one : opened.source->tensors(TensorKind::kWeight))
    there.push_back(one.name);
  for (const CanonicalShape& one : canonical_tensors(model)) {
    const bool of_head = one.name.starts_with("pooler.") || one.name.starts_with("label.") ||
                         one.name == kRewardTensor;
    if (!of_head || std::ranges::find(there, one.name) != there.end()) continue;
    added.emplace(one.name, one.shape);
    if (one.name.starts_with("pooler.")) opened.drawn.push_back(one.name);
  }
  opened.source = std::make_unique<LabelBase>(std::move(opened.source), std::move(added));
  opened.new_head = true;
}

}  // namespace piton
