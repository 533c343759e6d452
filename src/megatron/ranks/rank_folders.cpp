#include "megatron/ranks/rank_folders.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/listed.h"
#include "base/numbers_in_name.h"
#include "megatron/format/arguments.h"
#include "megatron/format/named_tensors.h"
#include "megatron/format/names.h"
#include "pickle/torch_file.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostFolders = 65536;

struct RankFolder {
  int t = 0;
  std::optional<int> second;
  std::optional<int> third;
  fs::path path;
  fs::path model;  // empty: it has none
  bool has_share = false;

  std::string name() const { return path.filename().string(); }
  bool is_data_parallel() const { return has_share && (third || (model.empty() && second)); }
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
  folder.has_share = fs::exists(path / kRankShare, ignored);
  for (const char* model : {"model_rng.pt", "model_optim_rng.pt"}) {
    if (fs::exists(path / model, ignored)) folder.model = path / model;
  }
  return folder;
}

std::vector<RankFolder> rank_folders_in(const fs::path& folder) {
  std::vector<RankFolder> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (std::optional<RankFolder> one = rank_folder(entry.path())) folders.push_back(*one);
  }
  std::ranges::sort(folders, {}, &RankFolder::path);
  return folders;
}

// What the arguments of one of the models say of experts; 0: nothing.
struct SaidOfExperts {
  int ranks = 0;
  int tensor = 0;
  bool by_tensor = false;
};

bool has_final_norm(const TorchFile& file) {
  bool found = false;
  visit_tensors(file.root(), [&](const std::string& name, const PickleValue& /*value*/) {
    const std::size_t tree = name.find('.') + 1;  // after "model."
    found = found || megatron_key(std::string_view(name).substr(tree)) == "final_norm.weight";
  });
  return found;
}

// Without arguments, as MindSpeed-LLM's converters write it: several ranks that have the norm after
// all layers are no stages.
int ranks_with_all_layers(const std::vector<RankFolder>& folders, const TorchFile& first) {
  int ranks = 0;
  for (const RankFolder& one : folders) ranks = std::max(ranks, one.second.value_or(0) + 1);
  return ranks > 1 && has_final_norm(first) ? ranks : 0;
}

SaidOfExperts said_of_experts(const std::vector<RankFolder>& folders) {
  const auto is_model = [](const RankFolder& one) { return !one.has_share && !one.model.empty(); };
  const auto first = std::ranges::find_if(folders, is_model);
  const bool stages_or_experts = first != folders.end() && first->second;
  // Nothing is divided by one folder without a second number.
  if (first == folders.end() || (folders.size() == 1 && !stages_or_experts)) return {};
  const TorchFile file(first->model);
  const PickleValue* values = file.root().find(kMegatronArguments);
  if (values == nullptr) values = file.root().find(kPitonArguments);
  if (values == nullptr) {
    const bool seconds = stages_or_experts && !first->third;
    return {.ranks = seconds ? ranks_with_all_layers(folders, file) : 0};
  }
  const auto number = [&](const char* name) {
    const PickleValue* value = values->find(name);
    if (value == nullptr || value->kind != PickleValue::Kind::kInt) return 0;
    return static_cast<int>(std::clamp<std::int64_t>(value->integer, 0, kMostFolders));
  };
  const PickleValue* by_tensor = values->find("moe_tp_extend_ep");
  SaidOfExperts said{.tensor = number("expert_tensor_parallel_size"),
                     .by_tensor = by_tensor != nullptr && by_tensor->truth};
  if (!stages_or_experts) return said;
  said.ranks = number("expert_model_parallel_size");
  if (said.by_tensor) said.tensor = 1;
  return said;
}

// Sorts folders into models and shares; the division gets room for all of them.
void sort_folders(const fs::path& folder, const std::vector<RankFolder>& folders,
                  bool seconds_are_experts, RankFolders& found) {
  std::set<std::string> stages;  // that have their own number
  std::string share_without_stage;
  for (const RankFolder& one : folders) {
    RankPlace place{.t = one.t, .p = one.second.value_or(0), .e = one.third.value_or(0)};
    if (one.is_data_parallel()) {
      if (!one.third) {
        share_without_stage = one.name();
        place.p = 0;
      }
      found.shares[{place.t, place.p}][one.third.value_or(*one.second)] = one.path;
      place.e = 0;
    } else if (one.has_share) {
      throw Error(Fault::kData,
                  "{}: has the model of a stage, and {} of a data-parallel rank: are two "
                  "checkpoints in one folder?",
                  one.path.string(), kRankShare);
    } else {
      if (seconds_are_experts && one.second && !one.third) std::swap(place.p, place.e);
      const fs::path model = one.model.empty() ? one.path / "model_optim_rng.pt" : one.model;
      if (!found.models.try_emplace(place, model).second) {
        throw Error(Fault::kData, "{}: rank {} of stage {} is there twice", folder.string(),
                    place.t, place.p);
      }
      if (one.second && !seconds_are_experts) stages.insert(one.name());
    }
    MegatronDivision& division = found.division;
    division.tensor = std::max(division.tensor, place.t + 1);
    division.pipeline = std::max(division.pipeline, place.p + 1);
    division.expert = std::max(division.expert, place.e + 1);
  }
  if (!share_without_stage.empty() && (!stages.empty() || found.division.pipeline > 1)) {
    throw Error(Fault::kData,
                "{}: {} has {} of a model without stages, but there are stages ({}): is a model "
                "missing, or are two checkpoints in one folder?",
                folder.string(), share_without_stage, kRankShare,
                stages.empty() ? "of other optimizers" : *stages.begin());
  }
}

// The ranks that write, of a stage (p = 0).
std::set<RankPlace> writers_of(const MegatronDivision& division) {
  if (division.experts_by_tensor) {
    std::set<RankPlace> writers;
    for (int t = 0; t < division.tensor; ++t) {
      for (int e = 0; e < division.expert; ++e) writers.insert({.t = t, .e = e});
    }
    return writers;
  }
  const int split = division.expert_tensor;
  std::set<RankPlace> writers;
  for (int r = 0; r < std::max(division.tensor, split * division.expert); ++r)
    writers.insert({.t = r % division.tensor, .e = r / split % division.expert});
  return writers;
}

}  // namespace

std::string rank_folder_name(const RankPlace& place, int stages, int expert_ranks) {
  std::string name = fmt::format("mp_rank_{:02}", place.t);
  if (stages > 1) name += fmt::format("_{:03}", place.p);
  if (expert_ranks > 1) name += fmt::format("_{:03}", place.e);
  return name;
}

bool has_rank_files(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (rank_folder(entry.path())) return true;
  }
  return false;
}

RankFolders find_rank_folders(const fs::path& folder) {
  const std::vector<RankFolder> folders = rank_folders_in(folder);
  const SaidOfExperts said = said_of_experts(folders);
  const bool threes = std::ranges::any_of(
      folders, [](const RankFolder& one) { return one.third && !one.has_share; });
  RankFolders found;
  MegatronDivision& division = found.division;
  division.version = 0;
  sort_folders(folder, folders, said.ranks > 1 && !threes, found);
  division.expert = std::max(division.expert, said.ranks);
  division.experts_by_tensor = said.by_tensor && division.tensor > 1;
  division.expert_tensor = said.tensor > 0              ? said.tensor
                           : division.experts_by_tensor ? 1
                                                        : division.tensor;
  const std::int64_t all = std::int64_t{division.tensor} * division.pipeline * division.expert;
  if (all > kMostFolders) {
    throw Error(Fault::kData, "{}: names ranks up to {} x {} x {}, wanted at most {}",
                folder.string(), division.tensor, division.pipeline, division.expert, kMostFolders);
  }
  if (division.tensor % division.expert_tensor != 0) {
    throw Error(Fault::kData,
                "{}: argument expert_tensor_parallel_size: got {}, wanted a divisor of the {} "
                "tensor ranks: in this format others write over each other's files",
                folder.string(), division.expert_tensor, division.tensor);
  }
  std::vector<std::string> missing;
  const std::set<RankPlace> writers = writers_of(division);
  for (int p = 0; p < division.pipeline; ++p) {
    for (RankPlace place : writers) {
      place.p = p;
      if (!found.models.contains(place))
        missing.push_back(rank_folder_name(place, division.pipeline, division.expert));
    }
  }
  if (!missing.empty()) {
    throw Error(Fault::kData, "{}: {} of {} ranks are missing: {}; copy them too", folder.string(),
                missing.size(), std::ssize(writers) * division.pipeline, listed(missing));
  }
  return found;
}

}  // namespace piton
