#include "megatron/ranks/expert_ranks.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/error.h"
#include "megatron/format/names.h"

namespace piton {
namespace {

std::int64_t experts_in(const BoxedTensors& tensors) {
  std::int64_t count = 0;
  for (const auto& one : tensors)
    count = std::max(count, expert_of_key(one.first).value_or(-1) + 1);
  return count;
}

// Which tensors, in which shapes, follows from the model, and is the same on all expert ranks.
void check_alike(const ExpertRankTensors& first, const ExpertRankTensors& other) {
  const std::int64_t wanted = experts_in(first.tensors);
  const std::int64_t got = experts_in(other.tensors);
  if (got != wanted) {
    throw Error(Fault::kData,
                "{}: has {} experts of a layer, and {} has {}: are they of one model?", other.where,
                got, first.where, wanted);
  }
  const auto lacks = [](const ExpertRankTensors& one, const ExpertRankTensors& with) {
    for (const auto& [key, tensor] : with.tensors) {
      const auto found = one.tensors.find(key);
      if (found == one.tensors.end()) {
        throw Error(Fault::kData, "{}: has no {}, which {} has; is the copy complete?", one.where,
                    key, with.where);
      }
      if (found->second.rows == tensor.rows && found->second.columns == tensor.columns) continue;
      throw Error(Fault::kData, "{}: {} is [{}, {}], and in {} [{}, {}]: are they of one model?",
                  one.where, key, found->second.rows, found->second.columns, with.where,
                  tensor.rows, tensor.columns);
    }
  };
  lacks(other, first);
  lacks(first, other);
}

}  // namespace

BoxedTensors with_all_experts(const ExpertRankTensors& own, std::vector<ExpertRankTensors> ranks) {
  BoxedTensors all;
  for (const auto& [key, tensor] : own.tensors) {
    if (!expert_of_key(key)) all.emplace(key, tensor);
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    check_alike(own, ranks[rank]);
    const std::int64_t first = static_cast<std::int64_t>(rank) * experts_in(ranks[rank].tensors);
    for (auto& [key, tensor] : ranks[rank].tensors) {
      if (const std::optional<std::int64_t> expert = expert_of_key(key))
        all.emplace(with_expert(key, first + *expert), std::move(tensor));
    }
  }
  return all;
}

}  // namespace piton
