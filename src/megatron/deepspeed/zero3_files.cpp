#include "megatron/deepspeed/zero3_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/listed.h"
#include "base/numbers_in_name.h"
#include "checkpoint/safetensors.h"
#include "megatron/deepspeed/deepspeed_files.h"
#include "megatron/format/flat_boxes.h"
#include "megatron/format/named_tensors.h"
#include "megatron/format/names.h"
#include "megatron/format/optimizer_groups.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using NodeKind = PickleValue::Kind;

constexpr int kMostFiles = 1 << 16;
constexpr const char* kStates = "optimizer_state_dict";
constexpr const char* kVectors = "fp32_flat_groups";
constexpr const char* kShapes = "param_shapes";
constexpr const char* kFrozenShapes = "frozen_param_shapes";
constexpr const char* kFragments = "frozen_param_fragments";
constexpr const char* kPartCount = "partition_count";

std::string where_of(const TorchFile& file) { return file.file().path().string(); }

std::string part_name(int part, int t, const char* kind) {
  return fmt::format("zero_pp_rank_{}_mp_rank_{:02}_{}_states.pt", part, t, kind);
}

const PickleValue& states_in(const TorchFile& file) {
  const PickleValue* states = file.root().find(kStates);
  if (states == nullptr || states->kind != NodeKind::kDict)
    throw Error(Fault::kData, "{}: has no {}", where_of(file), kStates);
  return *states;
}

// 0 where it is no number.
std::int64_t part_count(const TorchFile& file) {
  const PickleValue* count = states_in(file).find(kPartCount);
  if (count != nullptr && count->kind == NodeKind::kList && !count->items.empty())
    count = count->items.front();
  return count != nullptr && count->kind == NodeKind::kInt ? count->integer : 0;
}

// All vectors of a part, one behind another.
FlatVector part_vector(const TorchFile& file, ZeroState state) {
  const PickleValue& saved = states_in(file);
  const PickleValue* groups = saved.find(kVectors);
  if (groups == nullptr || groups->kind != NodeKind::kList)
    throw Error(Fault::kData, "{}: has no list {}, wanted a file of ZeRO-3", where_of(file),
                kVectors);
  FlatVector whole;
  if (state == ZeroState::kWeight) {
    for (std::size_t group = 0; group < groups->items.size(); ++group)
      append_vector(file, groups->items[group], fmt::format("{} {}", kVectors, group), whole);
    return whole;
  }
  const char* kind = state == ZeroState::kFirstMoment ? "exp_avg" : "exp_avg_sq";
  const PickleValue* optimizer = torch_optimizer(saved);
  if (optimizer == nullptr)
    throw Error(Fault::kData, "{}: has no state of an optimizer", where_of(file));
  const auto states = by_number(*optimizer->find("state"));
  for (std::size_t group = 0; group < groups->items.size(); ++group) {
    const auto own = states.find(static_cast<std::int64_t>(group));
    append_vector(file, own == states.end() ? nullptr : own->second->find(kind),
                  fmt::format("{} of group {}", kind, group), whole);
  }
  return whole;
}

// Of all groups, in their order.
std::vector<ZeroShape> shapes_in(const TorchFile& file) {
  const PickleValue* groups = file.root().find(kShapes);
  if (groups == nullptr || groups->kind != NodeKind::kList)
    throw Error(Fault::kData, "{}: has no list {}", where_of(file), kShapes);
  std::vector<ZeroShape> shapes;
  for (const PickleValue* group : groups->items) {
    for (ZeroShape& one : zero_shapes(*group, where_of(file), kShapes))
      shapes.push_back(std::move(one));
  }
  return shapes;
}

// What files of one checkpoint have alike.
std::int64_t number_in(const TorchFile& file, const char* name) {
  const PickleValue* value = file.root().find(name);
  return value != nullptr && value->kind == NodeKind::kInt ? value->integer : -1;
}

bool has_fragments(const TorchFile& file) {
  const PickleValue* fragments = file.root().find(kFragments);
  return fragments != nullptr && !fragments->pairs.empty();
}

struct FoundParts {
  std::map<std::pair<int, int>, fs::path> models;
  std::map<std::pair<int, int>, fs::path> states;
};

// Data-parallel rank and tensor rank of a file of such states ("model" or "optim").
std::optional<std::vector<int>> part_in_name(std::string_view name, const char* states) {
  if (name.starts_with("bf16_") || name.starts_with("fp16_")) name.remove_prefix(5);
  return numbers_in_name(name,
                         fmt::format("zero_pp_rank_{{1,5}}_mp_rank_{{2,4}}_{}_states.pt", states));
}

FoundParts parts_in(const fs::path& folder) {
  FoundParts found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const auto model = part_in_name(name, "model");
    const auto numbers = model ? model : part_in_name(name, "optim");
    if (!numbers) continue;
    auto& parts = model ? found.models : found.states;
    const std::pair place{numbers->at(1), numbers->at(0)};
    if (!parts.emplace(place, entry.path()).second)
      throw Error(Fault::kData, "{}: two files of part {} of tensor rank {}: {} and {}",
                  folder.string(), place.second, place.first, name,
                  parts.at(place).filename().string());
  }
  return found;
}

}  // namespace

bool has_zero3_files(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (part_in_name(entry.path().filename().string(), "model")) return true;
  }
  return false;
}

Zero3Files::Zero3Files(const fs::path& folder) : folder_(folder) {
  if (has_deepspeed_files(folder)) {
    throw Error(Fault::kData,
                "{}: has files of whole weights and zero_pp_rank_*_model_states.pt of ZeRO-3: are "
                "two checkpoints in one folder?",
                folder.string());
  }
  const FoundParts found = parts_in(folder);
  int parts = 0;
  for (const Paths* paths : {&found.models, &found.states}) {
    for (const auto& [place, path] : *paths) {
      division_.tensor = std::max(division_.tensor, place.first + 1);
      parts = std::max(parts, place.second + 1);
    }
  }
  if (std::int64_t{division_.tensor} * parts > kMostFiles) {
    throw Error(Fault::kData, "{}: names ranks up to {} x {}, wanted at most {}", folder.string(),
                division_.tensor, parts, kMostFiles);
  }
  // A file knows how many there were.
  const std::int64_t said =
      found.states.empty() ? 0 : part_count(TorchFile(found.states.begin()->second));
  if (said > parts && said * division_.tensor <= kMostFiles) parts = static_cast<int>(said);
  check_all_there(found.models, found.states, parts);
  open(found.models, found.states);
}

void Zero3Files::check_all_there(const Paths& models, const Paths& states, int parts) const {
  std::vector<std::string> missing;
  for (int t = 0; t < division_.tensor; ++t) {
    for (int part = 0; part < parts; ++part) {
      if (!models.contains({t, part})) missing.push_back(part_name(part, t, "model"));
      if (!states.contains({t, part})) missing.push_back(part_name(part, t, "optim"));
    }
  }
  if (missing.empty()) return;
  throw Error(Fault::kData, "{}: {} of {} files are missing: {}; copy them too", folder_.string(),
              missing.size(), 2 * parts * division_.tensor, listed(missing));
}

void Zero3Files::open(const Paths& models, const Paths& states) {
  models_.resize(static_cast<std::size_t>(division_.tensor));
  states_.resize(models_.size());
  for (const auto& [place, path] : models) {
    auto& own = models_[static_cast<std::size_t>(place.first)];
    auto file = std::make_unique<TorchFile>(path);
    if (!models_[0].empty()) compare_model(*file);
    // The others hold nothing else that is read.
    if (own.empty() || has_fragments(*file)) own.push_back(std::move(file));
  }
  for (const auto& [place, path] : states)
    states_[static_cast<std::size_t>(place.first)].push_back(std::make_unique<TorchFile>(path));
  OptimizerCounts counts;
  add_counts(*states_[0][0], states_in(*states_[0][0]), counts);
  for (const auto& parts : states_) {
    for (const auto& file : parts) compare_states(*file, parts.size(), counts);
  }
  const std::int64_t updates = number_in(*models_[0][0], "global_steps");
  if (updates >= 0 && !counts.steps.empty() && *counts.steps.rbegin() > updates) {
    throw Error(Fault::kData,
                "{}: is after {} updates, and {} after {}: are they of one iteration?",
                where_of(*states_[0][0]), *counts.steps.rbegin(), facts_file(), updates);
  }
}

void Zero3Files::compare_model(const TorchFile& own) const {
  const TorchFile& first = *models_[0][0];
  for (const char* name : {"iteration", "global_steps"}) {
    const std::int64_t wanted = number_in(first, name);
    const std::int64_t got = number_in(own, name);
    if (got == wanted) continue;
    throw Error(Fault::kData, "{}: {} is {}, and {} in {}: are the files of one iteration?",
                where_of(own), name, got, wanted, where_of(first));
  }
}

void Zero3Files::compare_states(const TorchFile& own, std::size_t parts,
                                const OptimizerCounts& wanted) const {
  const std::int64_t count = part_count(own);
  if (count != static_cast<std::int64_t>(parts)) {
    throw Error(Fault::kData, "{}: {} is {}, but there are {} files", where_of(own), kPartCount,
                count, parts);
  }
  OptimizerCounts counts;
  add_counts(own, states_in(own), counts);
  if (counts.steps == wanted.steps) return;
  throw Error(Fault::kData,
              "{}: after {} updates, and {} after {}: are the files of one iteration?",
              where_of(own), fmt::join(counts.steps, ", "), where_of(*states_[0][0]),
              fmt::join(wanted.steps, ", "));
}

std::string Zero3Files::file_of(int t, int) const {
  return where_of(*models_[static_cast<std::size_t>(t)].front());
}

void Zero3Files::visit_divided(int t, ZeroState state, const EachTensor& each) const {
  const auto& files = states_[static_cast<std::size_t>(t)];
  const TorchFile& model = *models_[static_cast<std::size_t>(t)].front();
  const std::vector<ZeroShape> shapes = shapes_in(model);
  const auto parts = std::ssize(files);
  std::vector<FlatVector> vectors;
  for (const auto& file : files) vectors.push_back(part_vector(*file, state));
  const auto refuse = [&](std::size_t part, const std::string& what) {
    throw Error(Fault::kData,
                "{}: the vectors of its groups have {} elements, {} of {} {}: is it "
                "of another model?",
                where_of(*files[part]), vectors[part].elements(), kShapes, where_of(model), what);
  };
  std::int64_t at = 0;
  for (const ZeroShape& shape : shapes) {
    const std::int64_t size = (shape.elements() + parts - 1) / parts;
    BoxedTensor tensor{.dtype = DType::kF32, .rows = shape.rows, .columns = shape.columns};
    for (std::size_t part = 0; part < vectors.size(); ++part) {
      if (size > vectors[part].elements() - at) refuse(part, "continues with " + shape.name);
      const std::int64_t begin = std::min(static_cast<std::int64_t>(part) * size, shape.elements());
      const std::int64_t count = std::min(size, shape.elements() - begin);
      add_flat_elements(vectors[part], at, count, begin, tensor);
    }
    at += size;
    each(shape.name, tensor);
  }
  for (std::size_t part = 0; part < vectors.size(); ++part) {
    if (vectors[part].elements() != at) refuse(part, fmt::format("ends after {}", at));
  }
}

void Zero3Files::visit_frozen(int t, const EachTensor& each) const {
  const auto& files = models_[static_cast<std::size_t>(t)];
  const PickleValue* shapes = files.front()->root().find(kFrozenShapes);
  if (shapes == nullptr || shapes->pairs.empty()) return;
  const auto parts = std::ssize(states_[static_cast<std::size_t>(t)]);
  if (std::ssize(files) != parts) {
    throw Error(Fault::kData, "{}: {} of {} files have {}", folder_.string(), files.size(), parts,
                kFragments);
  }
  for (const ZeroShape& shape : zero_shapes(*shapes, where_of(*files.front()), kFrozenShapes)) {
    const std::int64_t size = (shape.elements() + parts - 1) / parts;
    BoxedTensor tensor{.rows = shape.rows, .columns = shape.columns};
    std::int64_t begin = 0;
    for (const auto& file : files) {
      const std::string label = fmt::format("{} of {}", kFragments, shape.name);
      const PickleValue* fragments = file->root().find(kFragments);
      const PickleValue* value = fragments == nullptr ? nullptr : fragments->find(shape.name);
      if (value == nullptr || value->kind != NodeKind::kTensor)
        throw Error(Fault::kData, "{}: has no {}", where_of(*file), label);
      const BoxedTensor part =
          boxed_tensor(file->file(), file->tensor(*value, label), where_of(*file), label);
      if (part.rows != size || part.columns != 1 || (begin > 0 && part.dtype != tensor.dtype)) {
        throw Error(Fault::kData,
                    "{}: {} has [{}, {}] elements of {}, wanted {} in each of {} files",
                    where_of(*file), label, part.rows, part.columns, name(part.dtype), size, parts);
      }
      tensor.dtype = part.dtype;
      const std::int64_t end = std::min(begin + size, shape.elements());
      if (begin < end) {
        add_flat_boxes({file->file(), part.boxes.front().offset, begin, end},
                       {.columns = shape.columns}, tensor);
      }
      begin = end;
    }
    each(shape.name, tensor);
  }
}

BoxedTensors Zero3Files::named(int t, ZeroState state) const {
  NamedTensors named(file_of(t, 0));
  const EachTensor add = [&](const std::string& name, const BoxedTensor& tensor) {
    named.add(name, [&] { return tensor; });
  };
  visit_divided(t, state, add);
  if (state == ZeroState::kWeight) visit_frozen(t, add);
  return named.take();
}

BoxedTensors Zero3Files::tensors(int t, int, int) const { return named(t, ZeroState::kWeight); }

BoxedMoments Zero3Files::moments(int t, int, int) {
  return {.first = named(t, ZeroState::kFirstMoment), .second = named(t, ZeroState::kSecondMoment)};
}

OptimizerCounts Zero3Files::optimizer_counts() {
  OptimizerCounts counts;
  for (const auto& parts : states_) {
    for (const auto& file : parts) add_counts(*file, states_in(*file), counts);
  }
  return counts;
}

// The type of the first weight in the tree.
std::optional<DType> Zero3Files::copies_of() const {
  std::optional<DType> type;
  const PickleValue* module = models_[0][0]->root().find("module");
  if (module != nullptr) {
    visit_tensors(*module, [&](const std::string& name, const PickleValue& value) {
      if (!type && megatron_key(name)) type = dtype_of_safetensors(value.tensor.dtype);
    });
  }
  return type.value_or(DType::kF32);
}

}  // namespace piton
