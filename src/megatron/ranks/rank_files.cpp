#include "megatron/ranks/rank_files.h"

#include <algorithm>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files/links.h"
#include "base/listed.h"
#include "megatron/format/arguments.h"
#include "megatron/format/names.h"
#include "megatron/format/run_progress.h"
#include "megatron/ranks/expert_ranks.h"
#include "megatron/ranks/master_weights.h"
#include "megatron/ranks/optimizer_buffer.h"
#include "megatron/ranks/rank_folders.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostRanks = 4096;
constexpr const char* kDistributed = "distrib_optim.pt";
constexpr const char* kShares = "shard_fp32_from_float16_groups";
constexpr const char* kOptimizer = "optimizer";

// The vectors of a chunk in a distributed optimizer's file,
// {chunk: {(type, type): {"param": vector, "exp_avg": vector, ...}}}; null where they are not of
// one type.
const PickleValue* buffer_of(const PickleValue& chunks, int chunk) {
  for (const auto& [number, types] : chunks.pairs) {
    if (number->kind != PickleValue::Kind::kInt || number->integer != chunk) continue;
    return types->pairs.size() == 1 ? types->pairs[0].second : nullptr;
  }
  return nullptr;
}

// The vectors of a kind: one, or a list of one for each bucket (before February 2024). None where
// they are not vectors of fp32.
std::vector<FlatVector> vectors_of(const TorchFile& file, const PickleValue& state,
                                   const char* kind) {
  const PickleValue* value = state.find(kind);
  if (value == nullptr) return {};
  std::vector<const PickleValue*> buckets{value};
  if (value->kind == PickleValue::Kind::kList) buckets = value->items;
  std::vector<FlatVector> vectors;
  for (const PickleValue* bucket : buckets) {
    if (bucket->kind != PickleValue::Kind::kTensor) return {};
    const TorchTensor stored = file.tensor(*bucket, kind);
    if (stored.dtype != "F32" || stored.shape.size() != 1 || !stored.contiguous()) return {};
    vectors.push_back({{{&file.file(), stored.offset, 0, stored.shape[0]}}});
  }
  return vectors;
}

template <typename Chunks>
std::vector<OrderedWeights> ordered_of(const Chunks& chunks) {
  std::vector<OrderedWeights> ordered;
  for (const auto& chunk : chunks) ordered.push_back(chunk.ordered);
  return ordered;
}

}  // namespace

RankFiles::RankFiles(const fs::path& folder) : folder_(folder) {
  RankFolders folders = find_rank_folders(folder);
  division_ = folders.division;
  share_folders_ = std::move(folders.shares);
  ranks_.resize(static_cast<std::size_t>(division_.tensor));
  for (auto& stages : ranks_) stages.resize(static_cast<std::size_t>(division_.pipeline));
  for (const auto& [place, path] : folders.models) {
    refuse_link_out(path, folder);
    Rank& own = rank(place.t, place.p);
    ModelFile& file = own.models[place.e];
    file.weights = std::make_unique<TorchFile>(path);
    const fs::path distributed = path.parent_path() / kDistributed;
    std::error_code ignored;
    if (fs::exists(distributed, ignored)) file.optimizer = std::make_unique<TorchFile>(distributed);
  }
  compare_saves();
  while (facts().find(fmt::format("model{}", division_.chunks - 1)) != nullptr &&
         facts().find(fmt::format("model{}", division_.chunks)) != nullptr) {
    ++division_.chunks;
  }
}

void RankFiles::compare_saves() const {
  for (const std::vector<Rank>& stages : ranks_) {
    for (const Rank& one : stages) {
      for (const auto& [e, file] : one.models) check_same_save(rank(0, 0).model(), *file.weights);
    }
  }
}

std::string RankFiles::share_name(int t, int p, int d) const {
  return division_.pipeline > 1 ? fmt::format("mp_rank_{:02}_{:03}_{:03}/{}", t, p, d, kRankShare)
                                : fmt::format("mp_rank_{:02}_{:03}/{}", t, d, kRankShare);
}

const RankOptimizer* RankFiles::shares(int t, int p) {
  Rank& own = rank(t, p);
  if (own.shares != nullptr) return own.shares.get();
  const PickleValue* optimizer = own.model().root().find(kOptimizer);
  const bool in_model = optimizer != nullptr && optimizer->find(kShares) != nullptr;
  if (share_folders_.empty() && !in_model) return nullptr;
  const PickleValue* arguments = facts().find(kMegatronArguments);
  const PickleValue* value = arguments == nullptr ? nullptr : arguments->find("data_parallel_size");
  const bool said = value != nullptr && value->kind == PickleValue::Kind::kInt;
  std::vector<const TorchFile*> files{&own.model()};
  if (!share_folders_.empty()) {
    open_shares(t, p, said ? value->integer : 1);
    files.clear();
    for (const auto& file : own.share_files) files.push_back(file.get());
  } else if (said && value->integer > 1) {
    throw Error(Fault::kData,
                "{}: keeps the optimizer of data-parallel rank 0 of {} alone, as AscendSpeed "
                "writes it; the others are lost",
                file_of(t, p), value->integer);
  }
  own.shares = std::make_unique<RankOptimizer>(std::move(files));
  return own.shares.get();
}

// `said`: the number of data-parallel ranks by the arguments, 1 where they do not say it.
void RankFiles::open_shares(int t, int p, std::int64_t said) {
  std::int64_t ranks = said;
  for (const auto& [place, folders] : share_folders_)
    ranks = std::max<std::int64_t>(ranks, folders.rbegin()->first + 1);
  if (said > 1 && ranks > said) {
    throw Error(Fault::kData,
                "{}: has {} of data-parallel rank {}, but the arguments say data_parallel_size {}: "
                "are two checkpoints in one folder?",
                folder_.string(), kRankShare, ranks - 1, said);
  }
  std::vector<std::string> missing;
  std::vector<std::unique_ptr<TorchFile>> files;
  const auto folders = share_folders_.find({t, p});
  for (int d = 0; d < std::min(ranks, kMostRanks); ++d) {
    const bool there = folders != share_folders_.end() && folders->second.contains(d);
    if (!there) {
      missing.push_back(share_name(t, p, d));
    } else if (missing.empty()) {
      files.push_back(std::make_unique<TorchFile>(folders->second.at(d) / kRankShare));
    }
  }
  if (!missing.empty()) {
    throw Error(Fault::kData,
                "{}: {} of {} files of the optimizer's data-parallel ranks are missing: {}; copy "
                "them too",
                folder_.string(), missing.size(), ranks, listed(missing));
  }
  rank(t, p).share_files = std::move(files);
}

BoxedTensors RankFiles::tensors(int t, int p, int chunk) const {
  const auto of = [&](const TorchFile& file) {
    return ExpertRankTensors{file.file().path().string(), named(file, chunk).take()};
  };
  ExpertRankTensors own = of(rank(t, p).model());
  if (!has_expert_ranks()) return std::move(own.tensors);
  std::vector<ExpertRankTensors> experts;
  for (const ModelFile* file : models_with_experts({t, p})) experts.push_back(of(*file->weights));
  return with_all_experts(own, std::move(experts));
}

std::vector<const RankFiles::ModelFile*> RankFiles::models_with_experts(
    const RankPlace& place) const {
  std::vector<const ModelFile*> files;
  for (int e = 0; e < division_.expert; ++e) {
    if (!division_.experts_by_tensor) {
      files.push_back(&model_with_experts({place.t, place.p, e}));
      continue;
    }
    for (int t = 0; t < division_.tensor; ++t) files.push_back(&rank(t, place.p).models.at(e));
  }
  return files;
}

// The file of expert rank e that has the share of each expert that tensor rank t has.
const RankFiles::ModelFile& RankFiles::model_with_experts(const RankPlace& place) const {
  for (int i = 0; i < division_.tensor; i += division_.expert_tensor) {
    const auto& models = rank((place.t + i) % division_.tensor, place.p).models;
    const auto found = models.find(place.e);
    if (found != models.end()) return found->second;
  }
  PITON_ASSERT(false, "no file of expert rank {}", place.e);
}

NamedTensors RankFiles::named(const TorchFile& file, int chunk) const {
  const std::string where = file.file().path().string();
  const std::string tree_name =
      division_.chunks > 1 ? fmt::format("model{}", chunk) : std::string("model");
  const PickleValue* tree = file.root().find(tree_name);
  if (tree == nullptr)
    throw Error(Fault::kData, "{}: has no \"{}\", wanted the weights there", where, tree_name);
  NamedTensors tensors(where);
  tensors.add_tree(file, *tree);
  return tensors;
}

bool RankFiles::has_optimizer() const {
  return !share_folders_.empty() || rank(0, 0).first().optimizer != nullptr ||
         facts().find(kOptimizer) != nullptr;
}

RankFiles::Chunk RankFiles::in_order(const TorchFile& file, int chunk, Part part) const {
  NamedTensors stored = named(file, chunk);
  Chunk result{.weights = stored.take()};
  for (const std::string& key : stored.order()) {
    const bool expert = expert_of_key(key).has_value();
    if (part == Part::kAll || expert == (part == Part::kExperts))
      result.ordered.emplace_back(key, &result.weights.at(key));
  }
  return result;
}

// All chunks of the rank, which one optimizer has.
std::vector<RankFiles::Chunk> RankFiles::chunks_in_order(const TorchFile& file, Part part) const {
  std::vector<Chunk> chunks;
  for (int chunk = 0; chunk < division_.chunks; ++chunk)
    chunks.push_back(in_order(file, chunk, part));
  return chunks;
}

// That of the part in what `file` has of optimizers; null where it has none.
const PickleValue* RankFiles::part_of(const PickleValue* optimizers, Part part,
                                      const TorchFile& file) {
  if (optimizers == nullptr || part == Part::kAll) return optimizers;
  if (optimizers->kind != PickleValue::Kind::kList || optimizers->items.size() != 2) {
    throw Error(Fault::kData,
                "{}: wanted a list of two optimizers, that of the experts and before it that of "
                "all else, as Megatron-core has it for several expert ranks",
                file.file().path().string());
  }
  const PickleValue* own = optimizers->items[part == Part::kExperts ? 1 : 0];
  return own->kind == PickleValue::Kind::kNone ? nullptr : own;
}

template <typename Of>
BoxedTensors RankFiles::with_experts(const RankPlace& place, const Of& of) const {
  const ModelFile& first = rank(place.t, place.p).first();
  const BoxedTensors common = of(first, Part::kNoExperts);
  std::vector<ExpertRankTensors> ranks;
  for (const ModelFile* file : models_with_experts(place)) {
    BoxedTensors all = of(*file, Part::kExperts);
    all.insert(common.begin(), common.end());
    ranks.push_back({file->weights->file().path().string(), std::move(all)});
  }
  const ExpertRankTensors own = ranks.front();
  return with_all_experts(own, std::move(ranks));
}

void RankFiles::refuse_shares() const {
  if (division_.experts_by_tensor) {
    throw Error(Fault::kData, "{}: the optimizer of a run with moe_tp_extend_ep is not read",
                folder_.string());
  }
  if (share_folders_.empty()) return;
  throw Error(Fault::kData, "{}: {} of {} expert ranks is not read", folder_.string(), kRankShare,
              division_.expert);
}

BoxedTensors RankFiles::masters(int t, int p, int chunk) {
  if (has_expert_ranks()) {
    refuse_shares();
    return with_experts(
        {t, p}, [&](const ModelFile& file, Part part) { return masters_of(file, chunk, part); });
  }
  const Rank& own = rank(t, p);
  if (own.first().optimizer == nullptr) {
    if (const RankOptimizer* parts = shares(t, p)) {
      const std::vector<Chunk> chunks = chunks_in_order(own.model(), Part::kAll);
      return parts->copies(ordered_of(chunks))[static_cast<std::size_t>(chunk)];
    }
  }
  return masters_of(own.first(), chunk, Part::kAll);
}

BoxedTensors RankFiles::masters_of(const ModelFile& file, int chunk, Part part) const {
  if (file.optimizer != nullptr) {
    const PickleValue* chunks = part_of(&file.optimizer->root(), part, *file.optimizer);
    const PickleValue* state = chunks == nullptr ? nullptr : buffer_of(*chunks, chunk);
    if (state == nullptr) return {};
    const Chunk weights = in_order(*file.weights, chunk, part);
    const OptimizerBuffer buffer(vectors_of(*file.optimizer, *state, "param"), weights.ordered);
    return buffer.found() ? buffer.copies() : BoxedTensors();
  }
  const PickleValue* optimizer =
      part_of(file.weights->root().find(kOptimizer), part, *file.weights);
  if (optimizer == nullptr) return {};
  for (const char* name : {"fp32_from_fp16_params", "fp32_from_fp16"}) {
    const PickleValue* groups = optimizer->find(name);
    if (groups == nullptr) continue;
    const std::vector<Chunk> chunks = chunks_in_order(*file.weights, part);
    return masters_of_groups(*file.weights, *groups, ordered_of(chunks),
                             static_cast<std::size_t>(chunk));
  }
  return {};
}

BoxedMoments RankFiles::moments(int t, int p, int chunk) {
  if (has_expert_ranks()) {
    refuse_shares();
    std::map<std::pair<const ModelFile*, Part>, BoxedMoments> read;
    const auto once = [&](const ModelFile& file, Part part) -> const BoxedMoments& {
      const auto [found, is_new] = read.try_emplace({&file, part});
      if (is_new) found->second = moments_of(file, chunk, part);
      return found->second;
    };
    const RankPlace place{t, p};
    return {.first = with_experts(
                place, [&](const ModelFile& file, Part part) { return once(file, part).first; }),
            .second = with_experts(
                place, [&](const ModelFile& file, Part part) { return once(file, part).second; })};
  }
  const Rank& own = rank(t, p);
  if (own.first().optimizer == nullptr) {
    if (const RankOptimizer* parts = shares(t, p)) {
      const std::vector<Chunk> chunks = chunks_in_order(own.model(), Part::kAll);
      return parts->moments(ordered_of(chunks))[static_cast<std::size_t>(chunk)];
    }
  }
  return moments_of(own.first(), chunk, Part::kAll);
}

BoxedMoments RankFiles::moments_of(const ModelFile& file, int chunk, Part part) const {
  const std::string of_weights = file.weights->file().path().string();
  if (file.optimizer != nullptr) {
    const std::string where = file.optimizer->file().path().string();
    const PickleValue* chunks = part_of(&file.optimizer->root(), part, *file.optimizer);
    const PickleValue* state = chunks == nullptr ? nullptr : buffer_of(*chunks, chunk);
    if (state == nullptr) {
      throw Error(Fault::kData, "{}: has no vectors of one type of parameters for chunk {}{}",
                  where, chunk,
                  part == Part::kNoExperts ? ", of all but experts"
                  : part == Part::kExperts ? ", of experts"
                                           : "");
    }
    const Chunk weights = in_order(*file.weights, chunk, part);
    const OptimizerBuffer buffer(vectors_of(*file.optimizer, *state, "param"), weights.ordered);
    if (!buffer.found()) {
      throw Error(Fault::kData,
                  "{}: its copies of the weights are not those of {}: is it of another model, or "
                  "another iteration?",
                  where, of_weights);
    }
    BoxedMoments moments{
        .first = buffer.tensors(vectors_of(*file.optimizer, *state, "exp_avg")),
        .second = buffer.tensors(vectors_of(*file.optimizer, *state, "exp_avg_sq"))};
    if (moments.first.empty() || moments.second.empty()) {
      throw Error(Fault::kData, "{}: has no {} of as many elements as the copies of the weights",
                  where, moments.first.empty() ? "exp_avg" : "exp_avg_sq");
    }
    return moments;
  }
  const PickleValue* saved = part_of(file.weights->root().find(kOptimizer), part, *file.weights);
  const PickleValue* optimizer = saved == nullptr ? nullptr : torch_optimizer(*saved);
  if (optimizer == nullptr)
    throw Error(Fault::kData, "{}: has no state of an optimizer", of_weights);
  const std::vector<Chunk> chunks = chunks_in_order(*file.weights, part);
  return moments_of_groups(*file.weights, *optimizer,
                           ordered_of(chunks))[static_cast<std::size_t>(chunk)];
}

OptimizerCounts RankFiles::optimizer_counts() {
  OptimizerCounts counts;
  for (int t = 0; t < division_.tensor; ++t) {
    for (int p = 0; p < division_.pipeline; ++p) {
      if (const RankOptimizer* parts = shares(t, p)) {
        parts->add_counts(counts);
        continue;
      }
      for (const auto& [e, file] : rank(t, p).models) {
        const PickleValue* optimizer = file.weights->root().find(kOptimizer);
        if (optimizer != nullptr) add_counts(*file.weights, *optimizer, counts);
      }
    }
  }
  return counts;
}

const PickleValue* RankFiles::optimizer_facts() {
  if (shares(0, 0) == nullptr || rank(0, 0).share_files.empty()) return nullptr;
  return &rank(0, 0).share_files.front()->root();
}

}  // namespace piton
