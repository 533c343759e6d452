#include "megatron/format/optimizer_groups.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <span>

#include "base/error.h"
#include "megatron/format/named_tensors.h"

namespace piton {
namespace {

using StoredKind = PickleValue::Kind;

constexpr int kDeepest = 12;  // dict or list in what an optimizer saved

// A number, or a tensor of one.
double number_of(const TorchFile& file, const PickleValue& value, const char* name) {
  if (value.kind == StoredKind::kInt) return static_cast<double>(value.integer);
  if (value.kind == StoredKind::kFloat) return value.number;
  if (value.kind == StoredKind::kTensor) {
    const TorchTensor stored = file.tensor(value, name);
    std::int64_t elements = 1;
    for (const std::int64_t size : stored.shape) elements *= size;
    const auto read = [&](auto number) {
      file.file().read_at(stored.offset, std::as_writable_bytes(std::span(&number, 1)));
      return static_cast<double>(number);
    };
    if (elements == 1 && stored.dtype == "I64") return read(std::int64_t{});
    if (elements == 1 && stored.dtype == "I32") return read(std::int32_t{});
    if (elements == 1 && stored.dtype == "F32") return read(float{});
  }
  throw Error(Fault::kData, "{}: the optimizer's {} is no number", file.file().path().string(),
              name);
}

std::int64_t count_of(const TorchFile& file, const PickleValue& value, const char* name) {
  const double count = number_of(file, value, name);
  if (!(std::abs(count) <= 0x1p53) || count != std::floor(count)) {
    throw Error(Fault::kData, "{}: the optimizer's {} is {}, wanted a whole number",
                file.file().path().string(), name, count);
  }
  return static_cast<std::int64_t>(count);
}

// `depth`: that may still be entered; those of files are nested five deep.
void collect_steps(const TorchFile& file, const PickleValue& value, int depth,
                   std::set<const PickleValue*>& seen, std::set<std::int64_t>& steps) {
  if (depth == 0 || !seen.insert(&value).second) return;
  if (value.kind == StoredKind::kList) {
    for (const PickleValue* item : value.items) collect_steps(file, *item, depth - 1, seen, steps);
  }
  if (value.kind != StoredKind::kDict) return;
  const PickleValue* parameters = value.find("params");
  if (parameters != nullptr && parameters->kind == StoredKind::kList && parameters->items.empty())
    return;
  for (const auto& [key, inner] : value.pairs) {
    const bool named = key->kind == StoredKind::kText;
    if (named && (key->text == "step" || key->text == "common_step")) {
      if (inner->kind != StoredKind::kNone) steps.insert(count_of(file, *inner, "step"));
    } else {
      collect_steps(file, *inner, depth - 1, seen, steps);
    }
  }
}

}  // namespace

GroupOrder::GroupOrder(const std::vector<OrderedWeights>& chunks, bool narrow_alone) {
  for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    for (const auto& [key, weight] : chunks[chunk]) {
      if (narrow_alone && size_bytes(weight->dtype) != 2) continue;
      (weight->columns > 1 ? matrices_ : vectors_).push_back({chunk, key, weight});
    }
  }
}

GroupOrder::Place GroupOrder::next(const BoxedTensor& like) {
  std::deque<Place>& open = like.columns > 1 ? matrices_ : vectors_;
  if (open.empty()) return {};
  const Place place = open.front();
  open.pop_front();
  return place;
}

std::map<std::int64_t, const PickleValue*> by_number(const PickleValue& dict) {
  std::map<std::int64_t, const PickleValue*> result;
  for (const auto& [key, value] : dict.pairs) {
    if (key->kind == StoredKind::kInt) result[key->integer] = value;
  }
  return result;
}

const PickleValue* torch_optimizer(const PickleValue& saved) {
  for (const char* name : {"optimizer", "optimizer_state_dict"}) {
    const PickleValue* inner = saved.find(name);
    if (inner != nullptr && inner->find("state") != nullptr) return inner;
  }
  return saved.find("state") != nullptr ? &saved : nullptr;
}

std::vector<BoxedMoments> moments_of_groups(const TorchFile& file, const PickleValue& optimizer,
                                            const std::vector<OrderedWeights>& chunks) {
  const std::string where = file.file().path().string();
  const PickleValue* states = optimizer.find("state");
  const PickleValue* groups = optimizer.find("param_groups");
  if (states == nullptr || groups == nullptr || groups->kind != StoredKind::kList)
    throw Error(Fault::kData, "{}: an optimizer without groups of parameters", where);
  const std::map<std::int64_t, const PickleValue*> state_of = by_number(*states);
  GroupOrder order(chunks, /*narrow_alone=*/false);
  std::vector<BoxedMoments> moments(chunks.size());
  const auto moment = [&](std::int64_t number, const char* name) {
    const auto state = state_of.find(number);
    const PickleValue* value = state == state_of.end() ? nullptr : state->second->find(name);
    if (value == nullptr || value->kind != StoredKind::kTensor) {
      throw Error(Fault::kData, "{}: the optimizer has no {} of its parameter {}", where, name,
                  number);
    }
    const std::string label = fmt::format("{} of the optimizer's parameter {}", name, number);
    return boxed_tensor(file.file(), file.tensor(*value, label), where, label);
  };
  for (const PickleValue* group : groups->items) {
    const PickleValue* numbers = group->find("params");
    if (numbers == nullptr) continue;
    for (const PickleValue* number : numbers->items) {
      const BoxedTensor first = moment(number->integer, "exp_avg");
      const BoxedTensor second = moment(number->integer, "exp_avg_sq");
      const GroupOrder::Place place = order.next(first);
      const auto has_shape = [&](const BoxedTensor& one) {
        return !place.key.empty() && one.rows == place.weight->rows &&
               one.columns == place.weight->columns;
      };
      if (!has_shape(first) || !has_shape(second)) {
        throw Error(Fault::kData,
                    "{}: the moments of the optimizer's parameter {} are [{}, {}], and the weight "
                    "in its place is {}; is it the optimizer of another model?",
                    where, number->integer, first.rows, first.columns,
                    place.key.empty() ? "none"
                                      : fmt::format("{}, [{}, {}]", place.key, place.weight->rows,
                                                    place.weight->columns));
      }
      moments[place.chunk].first[place.key] = first;
      moments[place.chunk].second[place.key] = second;
    }
  }
  return moments;
}

void add_counts(const TorchFile& file, const PickleValue& saved, OptimizerCounts& counts) {
  if (saved.kind == StoredKind::kList) {  // of optimizers (ChainedOptimizer)
    for (const PickleValue* one : saved.items) {
      if (one->kind == StoredKind::kDict) add_counts(file, *one, counts);
    }
    return;
  }
  std::set<const PickleValue*> seen;
  collect_steps(file, saved, kDeepest, seen, counts.steps);
  const PickleValue* scaler = saved.find("grad_scaler");
  if (scaler != nullptr) add_loss_scale(file, *scaler, counts);
}

void add_loss_scale(const TorchFile& file, const PickleValue& scaler, OptimizerCounts& counts) {
  const PickleValue* scale = scaler.find("scale");
  const PickleValue* growth = scaler.find("growth_tracker");
  const PickleValue* hysteresis = scaler.find("hysteresis_tracker");
  if (counts.loss_scale || scale == nullptr || growth == nullptr || hysteresis == nullptr) return;
  counts.loss_scale = {.scale = number_of(file, *scale, "loss scale"),
                       .good_updates = count_of(file, *growth, "growth_tracker"),
                       .hysteresis_left = count_of(file, *hysteresis, "hysteresis_tracker")};
}

}  // namespace piton
