#include "megatron/ranks/optimizer_buffer.h"

#include <utility>

#include "base/error.h"
#include "megatron/ranks/master_weights.h"

namespace piton {
namespace {

constexpr std::int64_t kAlignment = 64;  // elements
constexpr int kMostLooks = 1 << 20;
// Parameters that are tried at a place: modules may list those of a layer in another order.
constexpr int kTried = 16;

std::int64_t elements_of(const BoxedTensor& tensor) { return tensor.rows * tensor.columns; }

}  // namespace

OptimizerBuffer::OptimizerBuffer(std::vector<FlatVector> copies, OrderedWeights weights)
    : copies_(std::move(copies)), weights_(std::move(weights)) {
  if (!copies_.empty() && !weights_.empty()) find_places();
}

std::vector<OptimizerBuffer::Place> OptimizerBuffer::candidates(
    const std::vector<bool>& taken) const {
  std::vector<Place> starts;
  if (places_.empty()) {
    starts.push_back({});
  } else {
    const Place& last = places_.back();
    const std::int64_t end = last.at + elements_of(*weights_[last.weight].second);
    const std::int64_t inside = end - last.bucket;
    const std::int64_t aligned = last.bucket + (inside + kAlignment - 1) / kAlignment * kAlignment;
    if (last.vector + 1 < copies_.size()) starts.push_back({.vector = last.vector + 1});
    if (aligned != end) starts.push_back({.vector = last.vector, .at = end, .bucket = end});
    starts.push_back({.vector = last.vector, .at = aligned, .bucket = last.bucket});
  }
  std::vector<std::size_t> open;
  for (std::size_t i = weights_.size(); i-- > 0 && open.size() < kTried;) {
    if (!taken[i]) open.push_back(i);
  }
  std::vector<Place> result;
  for (Place start : starts) {
    for (auto weight = open.rbegin(); weight != open.rend(); ++weight) {
      start.weight = *weight;
      result.push_back(start);
    }
  }
  return result;
}

// Goes from place to place, and back where nothing fits behind one: zeros look alike everywhere.
void OptimizerBuffer::find_places() {
  std::vector<bool> taken(weights_.size());
  std::vector<std::vector<Place>> open{candidates(taken)};
  for (int looks = 0; looks < kMostLooks && !open.empty();) {
    if (open.back().empty()) {
      open.pop_back();
      if (places_.empty()) break;
      taken[places_.back().weight] = false;
      places_.pop_back();
      continue;
    }
    const Place place = open.back().back();
    open.back().pop_back();
    const BoxedTensor& weight = *weights_[place.weight].second;
    const FlatVector& vector = copies_[place.vector];
    if (elements_of(weight) > vector.elements() - place.at) continue;
    ++looks;
    if (!is_master(tensor_in(vector, place.at, weight.rows, weight.columns), weight)) continue;
    places_.push_back(place);
    if (places_.size() == weights_.size()) return;
    taken[place.weight] = true;
    open.push_back(candidates(taken));
  }
  places_.clear();
}

BoxedTensors OptimizerBuffer::tensors(const std::vector<FlatVector>& vectors) const {
  PITON_ASSERT(found());
  if (vectors.size() != copies_.size()) return {};
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    if (vectors[i].elements() != copies_[i].elements()) return {};
  }
  BoxedTensors tensors;
  for (const Place& place : places_) {
    const auto& [key, weight] = weights_[place.weight];
    tensors[key] = tensor_in(vectors[place.vector], place.at, weight->rows, weight->columns);
  }
  return tensors;
}

}  // namespace piton
