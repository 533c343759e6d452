// What an optimizer has of every weight: the half of megatron_source.h that open_optimizer() needs.
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/listed.h"
#include "megatron/format/names.h"
#include "megatron/megatron_source.h"

namespace piton {
namespace {

// Those of modules that have the first matrices of all experts before the second ones
// (TEGroupedMLP).
OrderedWeights in_order_of_groups(OrderedWeights weights) {
  const auto layer_of = [](const std::pair<std::string, const BoxedTensor*>& one) {
    return expert_of_key(one.first) ? one.first.substr(0, one.first.find(".experts."))
                                    : std::string();
  };
  for (auto begin = weights.begin(); begin != weights.end();) {
    const std::string layer = layer_of(*begin);
    const auto end =
        std::find_if(begin, weights.end(), [&](const auto& one) { return layer_of(one) != layer; });
    if (!layer.empty())
      std::ranges::stable_sort(begin, end, {},
                               [](const auto& one) { return with_expert(one.first, 0); });
    begin = end;
  }
  return weights;
}

}  // namespace

void MegatronSource::open_optimizer() {
  const std::string where = files_->folder().string();
  if (!files_->has_optimizer()) throw Error(Fault::kData, "{}: keeps no optimizer", where);
  if (model_.experts && model_.experts->choice_bias) {
    throw Error(Fault::kData,
                "{}: the optimizer of a model with moe_router_enable_expert_bias is not read yet; "
                "--no-load-optim continues with a new one",
                where);
  }
  if (has_groups_) {
    throw Error(
        Fault::kData,
        "{}: the optimizer of a model with the experts of a rank in one tensor (GroupedMLP) "
        "is not read yet; --no-load-optim continues with a new one",
        where);
  }
  if (size_bytes(weight_dtype_) == 2 && !from_masters_) {
    throw Error(Fault::kData, "{}: no fp32 copies of the {} weights are found in the optimizer{}",
                where, name(weight_dtype_), why_no_masters_);
  }
  const OptimizerCounts counts = files_->optimizer_counts();
  if (counts.steps.size() != 1) {
    throw Error(Fault::kData,
                "{}: the optimizer's files name {} counts of updates ({}), wanted one", where,
                counts.steps.size(), fmt::join(counts.steps, ", "));
  }
  if (files_->has_buckets()) {
    add_bucket_moments();
  } else {
    for (int p = 0; p < stored_.pipeline; ++p) {
      for (int chunk = 0; chunk < stored_.chunks; ++chunk) {
        for (int t = 0; t < stored_.tensor; ++t) {
          add_moments(files_->moments(t, p, chunk), megatron_tensors(model_, stored_, t, p, chunk),
                      files_->file_of(t, p));
        }
      }
    }
  }
  first_moments_.check_cover(model_);
  second_moments_.check_cover(model_);
  if (const PickleValue* facts = files_->optimizer_facts())
    run_.schedule = read_megatron_schedule(*facts, where);
  run_.steps = std::max<std::int64_t>(*counts.steps.begin(), 0);
  run_.loss_scale = counts.loss_scale;
  if (optimizer_note_) notes_.erase(notes_.begin() + static_cast<std::ptrdiff_t>(*optimizer_note_));
  optimizer_note_.reset();
}

void MegatronSource::add_bucket_rank(const BoxedTensors& whole, const BucketPlace& place,
                                     const MegatronLayout& modules, const RankChunk& weights,
                                     const std::function<bool(const std::string& key)>& has) {
  std::vector<MegatronTensor> tensors =
      megatron_tensors(model_, modules, weights.t, weights.p, weights.chunk);
  std::erase_if(tensors, [&](const MegatronTensor& tensor) { return !has(tensor.key); });
  RankWeights own = weights_of_rank(whole, stored_, model_, modules, weights);
  std::erase_if(own.ordered, [&](const auto& one) { return !has(one.first); });
  OptimizerBuffer buffer(files_->buckets(place, "param"), own.ordered);
  if (!buffer.found()) {
    const OrderedWeights grouped = in_order_of_groups(own.ordered);
    buffer = OptimizerBuffer(files_->buckets(place, "param"), grouped);
  }
  bucket_ranks_.push_back(std::make_unique<BucketRank>(
      BucketRank{place, std::move(tensors), std::move(own), std::move(buffer)}));
}

// Once: for the copies of the weights and for the moments.
void MegatronSource::find_buckets() {
  if (!bucket_ranks_.empty()) return;
  MegatronLayout modules = layout_;
  modules.fused_mlp = true;
  modules.apart_states = false;
  try {
    modules.check(model_);
  } catch (const Error& error) {
    throw Error(Fault::kData, "{}: the optimizer's buckets are of an impossible division: {}",
                files_->facts_file(), error.what());
  }
  const BoxedTensors whole = files_->tensors(0, 0, 0);
  const bool apart = layout_.expert > 1;  // the experts have another optimizer
  MegatronLayout of_experts = modules;
  if (modules.expert_tensor != 0) of_experts.tensor = modules.expert_tensor;
  for (int p = 0; p < modules.pipeline; ++p) {
    for (int chunk = 0; chunk < modules.chunks; ++chunk) {
      for (int t = 0; t < modules.tensor; ++t) {
        BucketPlace place{.rank = p * modules.tensor + t, .chunk = chunk};
        if (apart) place.optimizer = 0;
        add_bucket_rank(whole, place, modules, {t, p, chunk},
                        [&](const std::string& key) { return !apart || !expert_of_key(key); });
      }
      if (!apart) continue;
      const std::int64_t own = model_.experts->experts / layout_.expert;
      for (int i = 0; i < of_experts.tensor * layout_.expert; ++i) {
        const int e = i / of_experts.tensor;
        add_bucket_rank(
            whole,
            {.rank = p * of_experts.tensor * layout_.expert + i, .chunk = chunk, .optimizer = 1},
            of_experts, {i % of_experts.tensor, p, chunk}, [&](const std::string& key) {
              const std::optional<std::int64_t> number = expert_of_key(key);
              return number && *number / own == e;
            });
      }
    }
  }
}

void MegatronSource::add_bucket_masters() {
  for (const auto& one : bucket_ranks_) {
    const BoxedTensors copies = one->buffer.copies();
    for (const MegatronTensor& wanted : one->tensors) {
      if (wanted.key != "head_copy.weight")
        pieces_.add(wanted.assembly, copies.at(wanted.key), files_->file_of(0, 0));
    }
  }
}

void MegatronSource::add_bucket_moments() {
  find_buckets();
  const std::string where = files_->file_of(0, 0);
  for (const auto& one : bucket_ranks_) {
    if (!one->buffer.found()) {
      throw Error(Fault::kData,
                  "{}: the optimizer's buckets of rank {}, chunk {} are not of these weights: the "
                  "copies in them differ",
                  where, one->place.rank, one->place.chunk);
    }
    const auto moments = [&](const char* kind) {
      BoxedTensors found = one->buffer.tensors(files_->buckets(one->place, kind));
      if (!found.empty()) return found;
      throw Error(Fault::kData,
                  "{}: the optimizer's buckets of rank {}, chunk {} have no {} of as many elements "
                  "as the copies of the weights",
                  where, one->place.rank, one->place.chunk, kind);
    };
    add_moments({.first = moments("exp_avg"), .second = moments("exp_avg_sq")}, one->tensors,
                where);
  }
}

void MegatronSource::add_moments(const BoxedMoments& moments,
                                 const std::vector<MegatronTensor>& tensors,
                                 const std::string& where) {
  std::vector<std::string> missing;
  const auto add = [&](const char* kind, const BoxedTensors& from, const MegatronTensor& wanted,
                       CanonicalPieces& to) {
    const auto found = from.find(wanted.key);
    if (found == from.end()) {
      missing.push_back(fmt::format("{}.{}", kind, wanted.key));
      return;
    }
    const Shape& shape = wanted.assembly.shape;
    const std::int64_t columns = shape.ndim() > 1 ? shape[1] : 1;
    if (found->second.rows != shape[0] || found->second.columns != columns) {
      throw Error(Fault::kData, "{}: {} of {} is [{}, {}], its weight {}", where, kind, wanted.key,
                  found->second.rows, found->second.columns, to_string(shape));
    }
    to.add(wanted.assembly, found->second, where);
  };
  for (const MegatronTensor& wanted : tensors) {
    if (wanted.key == "head_copy.weight") continue;  // those of the table
    add("exp_avg", moments.first, wanted, first_moments_);
    add("exp_avg_sq", moments.second, wanted, second_moments_);
  }
  if (!missing.empty()) {
    throw Error(Fault::kData, "{}: the optimizer lacks moments ({}): {}; is the copy complete?",
                where, missing.size(), listed(missing));
  }
}

}  // namespace piton
