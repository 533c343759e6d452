// What an optimizer has of every weight: the half of megatron_source.h that open_optimizer() needs.
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/listed.h"
#include "megatron/megatron_source.h"

namespace piton {

void MegatronSource::open_optimizer() {
  const std::string where = files_->folder().string();
  if (!files_->has_optimizer()) throw Error(Fault::kData, "{}: keeps no optimizer", where);
  const bool biased = model_.experts && model_.experts->choice_bias;
  if (stored_.expert > 1 || biased) {
    throw Error(Fault::kData,
                "{}: the optimizer of {} is not read yet; --no-load-optim continues with a new one",
                where,
                biased ? std::string("a model with moe_router_enable_expert_bias")
                       : fmt::format("{} expert ranks", stored_.expert));
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

// Once: for the copies of the weights and for the moments.
void MegatronSource::find_buckets() {
  if (!bucket_ranks_.empty()) return;
  if (layout_.expert > 1) {
    throw Error(
        Fault::kData,
        "{}: the optimizer's buckets are of {} expert ranks, wanted those of one; Megatron-LM "
        "saves states by name with --dist-ckpt-optim-fully-reshardable",
        files_->facts_file(), layout_.expert);
  }
  MegatronLayout modules = layout_;
  modules.fused_mlp = true;
  try {
    modules.check(model_);
  } catch (const Error& error) {
    throw Error(Fault::kData, "{}: the optimizer's buckets are of an impossible division: {}",
                files_->facts_file(), error.what());
  }
  const BoxedTensors whole = files_->tensors(0, 0, 0);
  for (int p = 0; p < modules.pipeline; ++p) {
    for (int chunk = 0; chunk < modules.chunks; ++chunk) {
      for (int t = 0; t < modules.tensor; ++t) {
        const int rank = p * modules.tensor + t;
        RankWeights weights = weights_of_rank(whole, model_, modules, {t, p, chunk});
        std::vector<FlatVector> copies = files_->buckets(rank, chunk, "param");
        OptimizerBuffer buffer(std::move(copies), weights.ordered);
        bucket_ranks_.push_back(std::make_unique<BucketRank>(
            BucketRank{rank, chunk, megatron_tensors(model_, modules, t, p, chunk),
                       std::move(weights), std::move(buffer)}));
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
                  where, one->rank, one->chunk);
    }
    const auto moments = [&](const char* kind) {
      BoxedTensors found = one->buffer.tensors(files_->buckets(one->rank, one->chunk, kind));
      if (!found.empty()) return found;
      throw Error(Fault::kData,
                  "{}: the optimizer's buckets of rank {}, chunk {} have no {} of as many elements "
                  "as the copies of the weights",
                  where, one->rank, one->chunk, kind);
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
