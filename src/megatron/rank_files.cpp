#include "megatron/rank_files.h"

#include <algorithm>
#include <optional>
#include <regex>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/listed.h"
#include "megatron/master_weights.h"
#include "megatron/optimizer_buffer.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostRanks = 4096;
constexpr const char* kDistributed = "distrib_optim.pt";
constexpr const char* kOptimizer = "optimizer";

// The numbers in a rank's folder name: mp_rank_TT or mp_rank_TT_PPP.
struct RankName {
  int t = 0;
  int p = 0;
};

std::optional<RankName> rank_name(const std::string& name) {
  if (!name.starts_with("mp_rank_")) return std::nullopt;
  const std::regex form("mp_rank_([0-9]{2,6})(?:_([0-9]{3,6}))?");
  std::smatch match;
  if (!std::regex_match(name, match, form)) return std::nullopt;
  RankName rank{.t = std::stoi(match[1])};
  if (match[2].matched) rank.p = std::stoi(match[2]);
  return rank;
}

// mp_rank_TT_DDD/optim.pt of data-parallel rank DDD, which looks like a stage.
bool is_optimizer_folder(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "optim.pt", ignored) &&
         !fs::exists(folder / "model_optim_rng.pt", ignored) &&
         !fs::exists(folder / "model_rng.pt", ignored);
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
    if (rank_name(entry.path().filename().string())) return true;
  }
  return false;
}

RankFiles::RankFiles(const fs::path& folder) : folder_(folder) {
  std::map<std::pair<int, int>, fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::optional<RankName> rank = rank_name(entry.path().filename().string());
    if (!rank) continue;
    if (is_optimizer_folder(entry.path())) {
      optimizer_apart_ = true;
      continue;
    }
    if (!found.try_emplace({rank->t, rank->p}, entry.path()).second) {
      throw Error(Fault::kData, "{}: rank {} of stage {} is there twice", folder.string(), rank->t,
                  rank->p);
    }
    division_.tensor = std::max(division_.tensor, rank->t + 1);
    division_.pipeline = std::max(division_.pipeline, rank->p + 1);
  }
  if (std::int64_t{division_.tensor} * division_.pipeline > kMostRanks) {
    throw Error(Fault::kData, "{}: names ranks up to {} x {}, wanted at most {}", folder.string(),
                division_.tensor, division_.pipeline, kMostRanks);
  }
  std::vector<std::string> missing;
  for (int t = 0; t < division_.tensor; ++t) {
    auto& stages = ranks_.emplace_back();
    for (int p = 0; p < division_.pipeline; ++p) {
      const auto rank = found.find({t, p});
      if (rank == found.end()) {
        missing.push_back(division_.pipeline > 1 ? fmt::format("mp_rank_{:02}_{:03}", t, p)
                                                 : fmt::format("mp_rank_{:02}", t));
        continue;
      }
      std::error_code ignored;
      fs::path file = rank->second / "model_optim_rng.pt";
      if (!fs::exists(file, ignored) && fs::exists(rank->second / "model_rng.pt", ignored))
        file = rank->second / "model_rng.pt";
      Rank& own = stages.emplace_back();
      own.model = std::make_unique<TorchFile>(file);
      if (fs::exists(rank->second / kDistributed, ignored))
        own.optimizer = std::make_unique<TorchFile>(rank->second / kDistributed);
    }
  }
  if (!missing.empty()) {
    throw Error(Fault::kData, "{}: {} of {} ranks are missing: {}; copy them too", folder.string(),
                missing.size(), division_.tensor * division_.pipeline, listed(missing));
  }
  while (facts().find(fmt::format("model{}", division_.chunks - 1)) != nullptr &&
         facts().find(fmt::format("model{}", division_.chunks)) != nullptr) {
    ++division_.chunks;
  }
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
  return optimizer_apart_ || rank(0, 0).optimizer != nullptr || facts().find(kOptimizer) != nullptr;
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
  if (optimizer_apart_) {
    throw Error(Fault::kData,
                "{}: the optimizer is in files of each data-parallel rank (optim.pt), as versions "
                "of Megatron-LM before 2023 write them, which are not read",
                folder_.string());
  }
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
  for (const std::vector<Rank>& stages : ranks_) {
    for (const Rank& one : stages) {
      const PickleValue* optimizer = one.model->root().find(kOptimizer);
      if (optimizer != nullptr) add_counts(*one.model, *optimizer, counts);
    }
  }
  return counts;
}

}  // namespace piton
