#include "megatron/deepspeed/deepspeed_optimizer.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/numbers_in_name.h"
#include "megatron/format/flat_boxes.h"
#include "megatron/format/optimizer_groups.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using ZeroKind = PickleValue::Kind;

// The vector of group `group` in a part; null where it has none.
const PickleValue* vector_of(const PickleValue& root, std::int64_t group, ZeroState state) {
  const PickleValue* saved = root.find("optimizer_state_dict");
  if (saved == nullptr) return nullptr;
  if (state == ZeroState::kWeight) {
    const PickleValue* groups = saved->find("single_partition_of_fp32_groups");
    const bool there = groups != nullptr && groups->kind == ZeroKind::kList &&
                       group < static_cast<std::int64_t>(groups->items.size());
    return there ? groups->items[static_cast<std::size_t>(group)] : nullptr;
  }
  const PickleValue* base = saved->find("base_optimizer_state");
  const PickleValue* states = base == nullptr ? nullptr : base->find("state");
  if (states == nullptr) return nullptr;
  for (const auto& [number, one] : states->pairs) {
    if (number->kind == ZeroKind::kInt && number->integer == group)
      return one->find(state == ZeroState::kFirstMoment ? "exp_avg" : "exp_avg_sq");
  }
  return nullptr;
}

const char* name_of(ZeroState state) {
  switch (state) {
    case ZeroState::kWeight:
      return "single_partition_of_fp32_groups";
    case ZeroState::kFirstMoment:
      return "exp_avg";
    case ZeroState::kSecondMoment:
      return "exp_avg_sq";
  }
  return "";
}

FlatVector flat_vector(const std::vector<std::unique_ptr<TorchFile>>& files, std::int64_t group,
                       ZeroState state) {
  FlatVector whole;
  for (const std::unique_ptr<TorchFile>& file : files) {
    append_vector(*file, vector_of(file->root(), group, state),
                  fmt::format("{} of group {}", name_of(state), group), whole);
  }
  return whole;
}

}  // namespace

DeepSpeedOptimizer::DeepSpeedOptimizer(const fs::path& folder) : folder_(folder) {
  constexpr std::string_view kNarrow = "bf16_";
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const std::size_t begin = name.starts_with(kNarrow) ? kNarrow.size() : 0;
    if (const auto numbers = numbers_in_name(std::string_view(name).substr(begin),
                                             "zero_pp_rank_{1,6}_mp_rank_{2,4}_optim_states.pt"))
      paths_[numbers->at(1)][numbers->at(0)] = entry.path();
  }
}

const DeepSpeedOptimizer::Parts& DeepSpeedOptimizer::parts(int number) {
  Parts& parts = parts_[number];
  if (!parts.empty()) return parts;
  const std::map<int, fs::path>& paths = paths_[number];
  // Each rank has as many.
  std::size_t count = 0;
  for (const auto& [other, theirs] : paths_) count = std::max(count, theirs.size());
  for (int part = 0; part < static_cast<int>(count); ++part) {
    const auto path = paths.find(part);
    if (path == paths.end()) {
      throw Error(Fault::kData,
                  "{}: has no zero_pp_rank_{}_mp_rank_{:02}_optim_states.pt; copy it too",
                  folder_.string(), part, number);
    }
    parts.push_back(std::make_unique<TorchFile>(path->second));
  }
  return parts;
}

BoxedTensors DeepSpeedOptimizer::tensors(int number, const PickleValue* shapes, ZeroState state,
                                         const std::string& where) {
  if (shapes == nullptr || shapes->kind != ZeroKind::kList)
    throw Error(Fault::kData, "{}: has no list param_shapes, the order of ZeRO's vectors", where);
  BoxedTensors tensors;
  for (std::size_t group = 0; group < shapes->items.size(); ++group) {
    const FlatVector vector = flat_vector(parts(number), static_cast<std::int64_t>(group), state);
    std::int64_t at = 0;
    for (const ZeroShape& one : zero_shapes(*shapes->items[group], where, "param_shapes")) {
      if (one.elements() > vector.elements() - at) {
        throw Error(Fault::kData, "{}: {} of group {} ends before {}, {} elements; is it of {}?",
                    folder_.string(), name_of(state), group, one.name, one.elements(), where);
      }
      tensors[one.name] = tensor_in(vector, at, one.rows, one.columns);
      at += one.elements();
    }
  }
  return tensors;
}

OptimizerCounts DeepSpeedOptimizer::counts() {
  OptimizerCounts counts;
  for (const auto& [number, paths] : paths_) {
    for (const std::unique_ptr<TorchFile>& file : parts(number))
      add_counts(*file, file->root(), counts);
  }
  return counts;
}

}  // namespace piton
