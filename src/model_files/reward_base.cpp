#include "model_files/reward_base.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "model/reward_head.h"

namespace piton {
namespace {

class RewardBase final : public TensorSource {
 public:
  RewardBase(std::unique_ptr<TensorSource> model, std::int64_t hidden)
      : model_(std::move(model)), hidden_(hidden) {}

  std::string where() const override { return model_->where(); }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override {
    std::vector<CanonicalTensor> list = model_->tensors(kind);
    if (kind != TensorKind::kWeight) return list;
    std::erase_if(list, [](const CanonicalTensor& one) { return one.name.starts_with("head."); });
    list.push_back({.name = kRewardTensor, .dtype = DType::kF32, .shape = {1, hidden_}});
    std::ranges::sort(list, {}, &CanonicalTensor::name);
    return list;
  }
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override {
    if (name != kRewardTensor) return model_->read(name, run, dtype, dst);
    std::memset(dst, 0, static_cast<std::size_t>(run.size() * size_bytes(dtype)));
  }
  std::optional<CodeFormat> stored_format(const std::string& name) const override {
    return name == kRewardTensor ? std::nullopt : model_->stored_format(name);
  }
  void read_codes(const std::string& name, const StoredRow& row, const CodedRow& to) override {
    model_->read_codes(name, row, to);
  }
  bool reads_in_parallel() const override { return model_->reads_in_parallel(); }

 private:
  std::unique_ptr<TensorSource> model_;
  std::int64_t hidden_;
};

}  // namespace

void make_reward_model(OpenedModel& opened) {
  ModelConfig& model = opened.model;
  if (model.reward_head) return;
  if (model.encoder) {
    throw Error(Fault::kData, "{}: is an encoder, wanted a decoder as the start of a reward model",
                opened.name);
  }
  model.reward_head = true;
  model.tied = model.normalized_head = false;
  model.logit_soft_cap = 0;
  model.logit_divisor = 1;
  model.head_bias = false;
  opened.source = std::make_unique<RewardBase>(std::move(opened.source), model.hidden);
  opened.new_head = true;
}

}  // namespace piton
