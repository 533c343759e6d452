#include "megatron/ranks/rank_files.h"

#include <algorithm>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files/links.h"
#include "base/listed.h"
#include "base/numbers_in_name.h"
#include "megatron/format/arguments.h"
#include "megatron/format/run_progress.h"
#include "megatron/ranks/master_weights.h"
#include "megatron/ranks/optimizer_buffer.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostRanks = 4096;
constexpr const char* kDistributed = "distrib_optim.pt";
constexpr const char* kShare = "optim.pt";
constexpr const char* kShares = "shard_fp32_from_float16_groups";
constexpr const char* kOptimizer = "optimizer";

// A folder of a rank: mp_rank_TT, mp_rank_TT_NNN or mp_rank_TT_PPP_DDD. The last is of experts
// unless it has a share of the optimizer.
struct RankFolder {
  int t = 0;
  std::optional<int> second;  // stage or data-parallel rank
  std::optional<int> third;   // data-parallel rank
  fs::path path;
  fs::path model;  // empty: it has none
  bool has_share = false;

  bool is_data_parallel() const { return third || (has_share && model.empty() && second); }
};

std::optional<RankFolder> rank_folder(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with("mp_rank_")) return std::nullopt;
  std::optional<std::vector<int>> numbers;
  for (const char* form : {"mp_rank_{2,6}", "mp_rank_{2,6}_{3,6}", "mp_rank_{2,6}_{3,6}_{3,6}"}) {
    if (!numbers) numbers = numbers_in_name(name, form);
  }
  if (!numbers) return std::nullopt;
  RankFolder folder{.t = numbers->at(0), .path = path};
  if (numbers->size() > 1) folder.second = numbers->at(1);
  if (numbers->size() > 2) folder.third = numbers->at(2);
  std::error_code ignored;
  folder.has_share = fs::exists(path / kShare, ignored);
  for (const char* model : {"model_rng.pt", "model_optim_rng.pt"}) {
    if (fs::exists(path / model, ignored)) folder.model = path / model;
  }
  if (folder.third && !folder.has_share) return std::nullopt;
  return folder;
}

// The vectors of a chunk in a distributed optimizer's file,
// {chunk: {(type, type): {"param": vector, "exp_avg": vector, ...}}}; null where they are not of
// one type.
const PickleValue* buffer_of(const TorchFile& file, int chunk) {
  for (const auto& [number, types] : file.root().pairs) {
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

bool has_rank_files(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (rank_folder(entry.path())) return true;
  }
  return false;
}

RankFiles::RankFiles(const fs::path& folder) : folder_(folder) {
  const std::map<RankPlace, fs::path> found = find_ranks();
  if (std::int64_t{division_.tensor} * division_.pipeline > kMostRanks) {
    throw Error(Fault::kData, "{}: names ranks up to {} x {}, wanted at most {}", folder.string(),
                division_.tensor, division_.pipeline, kMostRanks);
  }
  std::vector<std::string> missing;
  for (int t = 0; t < division_.tensor; ++t) {
    auto& stages = ranks_.emplace_back();
    for (int p = 0; p < division_.pipeline; ++p) {
      const auto file = found.find({t, p});
      if (file == found.end()) {
        missing.push_back(division_.pipeline > 1 ? fmt::format("mp_rank_{:02}_{:03}", t, p)
                                                 : fmt::format("mp_rank_{:02}", t));
        continue;
      }
      std::error_code ignored;
      refuse_link_out(file->second, folder);
      Rank& own = stages.emplace_back();
      own.model = std::make_unique<TorchFile>(file->second);
      const fs::path distributed = file->second.parent_path() / kDistributed;
      if (fs::exists(distributed, ignored))
        own.optimizer = std::make_unique<TorchFile>(distributed);
    }
  }
  if (!missing.empty()) {
    throw Error(Fault::kData, "{}: {} of {} ranks are missing: {}; copy them too", folder.string(),
                missing.size(), division_.tensor * division_.pipeline, listed(missing));
  }
  compare_saves();
  while (facts().find(fmt::format("model{}", division_.chunks - 1)) != nullptr &&
         facts().find(fmt::format("model{}", division_.chunks)) != nullptr) {
    ++division_.chunks;
  }
}

// The files of the models; the division and the shares of optimizers are kept.
std::map<RankFiles::RankPlace, fs::path> RankFiles::find_ranks() {
  std::map<RankPlace, fs::path> found;
  std::set<std::string> stages;  // that have their own number
  std::string share_without_stage;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    const std::optional<RankFolder> one = rank_folder(entry.path());
    if (!one) continue;
    int p = one->second.value_or(0);
    division_.tensor = std::max(division_.tensor, one->t + 1);
    if (one->is_data_parallel()) {
      if (!one->third) {
        share_without_stage = one->path.filename().string();
        p = 0;
      }
      share_folders_[{one->t, p}][one->third.value_or(*one->second)] = one->path;
    } else if (one->has_share) {
      throw Error(Fault::kData,
                  "{}: has the model of a stage, and {} of a data-parallel rank: are two "
                  "checkpoints in one folder?",
                  one->path.string(), kShare);
    } else {
      const fs::path model = one->model.empty() ? one->path / "model_optim_rng.pt" : one->model;
      if (!found.try_emplace({one->t, p}, model).second) {
        throw Error(Fault::kData, "{}: rank {} of stage {} is there twice", folder_.string(),
                    one->t, p);
      }
      if (one->second) stages.insert(one->path.filename().string());
    }
    division_.pipeline = std::max(division_.pipeline, p + 1);
  }
  if (!share_without_stage.empty() && (!stages.empty() || division_.pipeline > 1)) {
    throw Error(Fault::kData,
                "{}: {} has {} of a model without stages, but there are stages ({}): is a model "
                "missing, or are two checkpoints in one folder?",
                folder_.string(), share_without_stage, kShare,
                stages.empty() ? "of other optimizers" : *stages.begin());
  }
  return found;
}

void RankFiles::compare_saves() const {
  for (const std::vector<Rank>& stages : ranks_) {
    for (const Rank& one : stages) check_same_save(*ranks_.front().front().model, *one.model);
  }
}

std::string RankFiles::share_name(int t, int p, int d) const {
  return division_.pipeline > 1 ? fmt::format("mp_rank_{:02}_{:03}_{:03}/{}", t, p, d, kShare)
                                : fmt::format("mp_rank_{:02}_{:03}/{}", t, d, kShare);
}

const RankOptimizer* RankFiles::shares(int t, int p) {
  Rank& own = rank(t, p);
  if (own.shares != nullptr) return own.shares.get();
  const PickleValue* optimizer = own.model->root().find(kOptimizer);
  const bool in_model = optimizer != nullptr && optimizer->find(kShares) != nullptr;
  if (share_folders_.empty() && !in_model) return nullptr;
  const PickleValue* arguments = facts().find(kMegatronArguments);
  const PickleValue* value = arguments == nullptr ? nullptr : arguments->find("data_parallel_size");
  const bool said = value != nullptr && value->kind == PickleValue::Kind::kInt;
  std::vector<const TorchFile*> files{own.model.get()};
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
                folder_.string(), kShare, ranks - 1, said);
  }
  std::vector<std::string> missing;
  std::vector<std::unique_ptr<TorchFile>> files;
  const auto folders = share_folders_.find({t, p});
  for (int d = 0; d < std::min(ranks, kMostRanks); ++d) {
    const bool there = folders != share_folders_.end() && folders->second.contains(d);
    if (!there) {
      missing.push_back(share_name(t, p, d));
    } else if (missing.empty()) {
      files.push_back(std::make_unique<TorchFile>(folders->second.at(d) / kShare));
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

BoxedTensors RankFiles::tensors(int t, int p, int chunk) const { return named(t, p, chunk).take(); }

NamedTensors RankFiles::named(int t, int p, int chunk) const {
  const TorchFile& file = *rank(t, p).model;
  const std::string where = file_of(t, p);
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
  return !share_folders_.empty() || rank(0, 0).optimizer != nullptr ||
         facts().find(kOptimizer) != nullptr;
}

RankFiles::Chunk RankFiles::in_order(int t, int p, int chunk) const {
  NamedTensors stored = named(t, p, chunk);
  Chunk result{.weights = stored.take()};
  for (const std::string& key : stored.order())
    result.ordered.emplace_back(key, &result.weights.at(key));
  return result;
}

// All chunks of the rank, which one optimizer has.
std::vector<RankFiles::Chunk> RankFiles::chunks_in_order(int t, int p) const {
  std::vector<Chunk> chunks;
  for (int chunk = 0; chunk < division_.chunks; ++chunk) chunks.push_back(in_order(t, p, chunk));
  return chunks;
}

BoxedTensors RankFiles::masters(int t, int p, int chunk) {
  const Rank& own = rank(t, p);
  if (own.optimizer != nullptr) {
    const PickleValue* state = buffer_of(*own.optimizer, chunk);
    if (state == nullptr) return {};
    const Chunk weights = in_order(t, p, chunk);
    const OptimizerBuffer buffer(vectors_of(*own.optimizer, *state, "param"), weights.ordered);
    return buffer.found() ? buffer.copies() : BoxedTensors();
  }
  if (const RankOptimizer* parts = shares(t, p)) {
    const std::vector<Chunk> chunks = chunks_in_order(t, p);
    return parts->copies(ordered_of(chunks))[static_cast<std::size_t>(chunk)];
  }
  const PickleValue* optimizer = own.model->root().find(kOptimizer);
  if (optimizer == nullptr) return {};
  for (const char* name : {"fp32_from_fp16_params", "fp32_from_fp16"}) {
    const PickleValue* groups = optimizer->find(name);
    if (groups == nullptr) continue;
    const std::vector<Chunk> chunks = chunks_in_order(t, p);
    return masters_of_groups(*own.model, *groups, ordered_of(chunks),
                             static_cast<std::size_t>(chunk));
  }
  return {};
}

BoxedMoments RankFiles::moments(int t, int p, int chunk) {
  const Rank& own = rank(t, p);
  if (own.optimizer != nullptr) {
    const std::string where = own.optimizer->file().path().string();
    const PickleValue* state = buffer_of(*own.optimizer, chunk);
    if (state == nullptr) {
      throw Error(Fault::kData, "{}: has no vectors of one type of parameters for chunk {}", where,
                  chunk);
    }
    const Chunk weights = in_order(t, p, chunk);
    const OptimizerBuffer buffer(vectors_of(*own.optimizer, *state, "param"), weights.ordered);
    if (!buffer.found()) {
      throw Error(Fault::kData,
                  "{}: its copies of the weights are not those of {}: is it of another model, or "
                  "another iteration?",
                  where, file_of(t, p));
    }
    BoxedMoments moments{
        .first = buffer.tensors(vectors_of(*own.optimizer, *state, "exp_avg")),
        .second = buffer.tensors(vectors_of(*own.optimizer, *state, "exp_avg_sq"))};
    if (moments.first.empty() || moments.second.empty()) {
      throw Error(Fault::kData, "{}: has no {} of as many elements as the copies of the weights",
                  where, moments.first.empty() ? "exp_avg" : "exp_avg_sq");
    }
    return moments;
  }
  if (const RankOptimizer* parts = shares(t, p)) {
    const std::vector<Chunk> chunks = chunks_in_order(t, p);
    return parts->moments(ordered_of(chunks))[static_cast<std::size_t>(chunk)];
  }
  const PickleValue* saved = own.model->root().find(kOptimizer);
  const PickleValue* optimizer = saved == nullptr ? nullptr : torch_optimizer(*saved);
  if (optimizer == nullptr)
    throw Error(Fault::kData, "{}: has no state of an optimizer", file_of(t, p));
  const std::vector<Chunk> chunks = chunks_in_order(t, p);
  return moments_of_groups(*own.model, *optimizer,
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
      const TorchFile& model = *rank(t, p).model;
      const PickleValue* optimizer = model.root().find(kOptimizer);
      if (optimizer != nullptr) add_counts(model, *optimizer, counts);
    }
  }
  return counts;
}

const PickleValue* RankFiles::optimizer_facts() {
  if (shares(0, 0) == nullptr || rank(0, 0).share_files.empty()) return nullptr;
  return &rank(0, 0).share_files.front()->root();
}

}  // namespace piton
