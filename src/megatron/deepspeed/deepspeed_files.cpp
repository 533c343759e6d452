#include "megatron/deepspeed/deepspeed_files.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <system_error>

#include "base/error.h"
#include "base/files/links.h"
#include "base/listed.h"
#include "base/numbers_in_name.h"
#include "megatron/format/run_progress.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Kind = PickleValue::Kind;

constexpr const char* kModule = "module";
constexpr int kMostNumber = 4096;  // of ranks and of layers

struct Found {
  std::vector<int> ranks;                          // mp_rank_NN_model_states.pt
  std::map<std::pair<int, int>, fs::path> layers;  // layer_LL-model_TT-model_states.pt
  bool optimizer = false;                          // *_optim_states.pt
};

Found files_in(const fs::path& folder) {
  Found found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (const auto rank = numbers_in_name(name, "mp_rank_{2,4}_model_states.pt")) {
      found.ranks.push_back(rank->at(0));
    } else if (const auto layer =
                   numbers_in_name(name, "layer_{2,4}-model_{2,4}-model_states.pt")) {
      found.layers[{layer->at(0), layer->at(1)}] = entry.path();
    } else if (name.ends_with("_optim_states.pt")) {
      found.optimizer = true;
    }
  }
  std::ranges::sort(found.ranks);
  return found;
}

std::string rank_file_name(int number) {
  return fmt::format("mp_rank_{:02}_model_states.pt", number);
}

// The number before the first point of "3.mlp.dense_4h_to_h.weight", and what follows.
std::optional<std::pair<int, std::string_view>> numbered(std::string_view name) {
  const std::size_t point = name.find('.');
  if (point == name.npos) return std::nullopt;
  int number = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + point, number);
  if (error != std::errc() || stop != name.data() + point || number < 0) return std::nullopt;
  return std::pair{number, name.substr(point + 1)};
}

// The name in Megatron's tree of a tensor in a pipeline of numbered layers.
std::string name_in_tree(const std::string& name) {
  constexpr std::string_view kTied = "tied_modules.embed.";
  if (name.starts_with(kTied)) return "embedding." + name.substr(kTied.size());
  const auto at = numbered(name);
  if (!at) return name;
  const auto& [number, rest] = *at;
  if (rest == "weight" || rest == "bias") return fmt::format("final_layernorm.{}", rest);
  if (rest == "norm.weight" || rest == "norm.bias") return fmt::format("final_{}", rest);
  if (rest.starts_with("final_layernorm.") || rest.starts_with("lm_head."))
    return std::string(rest);
  if (number < kFirstPipelineLayer) return fmt::format("embedding.{}", rest);
  return fmt::format("layers.{}.{}", number - kFirstPipelineLayer, rest);
}

}  // namespace

bool has_deepspeed_files(const fs::path& folder) {
  const Found found = files_in(folder);
  return !found.ranks.empty() || !found.layers.empty();
}

DeepSpeedFiles::DeepSpeedFiles(const fs::path& folder) : folder_(folder), optimizer_(folder) {
  const Found found = files_in(folder);
  has_optimizer_ = found.optimizer;
  if (!found.ranks.empty()) {
    for (std::size_t i = 0; i < found.ranks.size(); ++i) {
      if (found.ranks[i] == static_cast<int>(i)) continue;
      throw Error(Fault::kData, "{}: has no {}; copy it too", folder.string(),
                  rank_file_name(static_cast<int>(i)));
    }
    for (const int number : found.ranks)
      rank_files_.push_back(&open(folder / rank_file_name(number)));
    first_ = files_.front().get();
    for (const TorchFile* other : rank_files_) check_same_save(*first_, *other);
  }
  if (found.layers.empty()) {
    place_rank_files(found.ranks);
  } else {
    place_layer_files(found.layers);
  }
}

const TorchFile& DeepSpeedFiles::open(const fs::path& path) {
  refuse_link_out(path, folder_);
  return *files_.emplace_back(std::make_unique<TorchFile>(path));
}

void DeepSpeedFiles::place_rank_files(const std::vector<int>& numbers) {
  std::size_t last_stage = 0;
  std::vector<Part> parts;
  for (const std::unique_ptr<TorchFile>& file : files_) {
    const PickleValue* module = file->root().find(kModule);
    if (module == nullptr || module->kind != Kind::kDict) {
      throw Error(Fault::kData, "{}: has no \"{}\", wanted the weights there",
                  file->file().path().string(), kModule);
    }
    const PickleValue* inner = module->find(kModule);
    if (inner != nullptr && inner->kind == Kind::kDict) {
      pipeline_ = true;
      module = inner;
      const bool has_final_norm = std::ranges::any_of(module->pairs, [](const auto& pair) {
        return pair.first->kind == Kind::kText &&
               name_in_tree(pair.first->text).starts_with("final_");
      });
      last_stage += has_final_norm ? 1 : 0;
    }
    parts.push_back({.file = file.get(), .tree = module});
  }
  // Each tensor rank of the last stage has the final norm.
  const std::size_t tensor = pipeline_ ? last_stage : numbers.size();
  if (tensor == 0 || parts.size() % tensor != 0) {
    throw Error(Fault::kData, "{}: {} of {} files have the final norm; is the copy complete?",
                folder_.string(), last_stage, parts.size());
  }
  division_.tensor = static_cast<int>(tensor);
  ranks_.resize(tensor);
  for (std::size_t i = 0; i < parts.size(); ++i) ranks_[i % tensor].push_back(parts[i]);
}

void DeepSpeedFiles::place_layer_files(const std::map<std::pair<int, int>, fs::path>& layers) {
  pipeline_ = true;
  std::set<int> numbers;
  for (const auto& [place, path] : layers) {
    numbers.insert(place.first);
    division_.tensor = std::max(division_.tensor, place.second + 1);
  }
  std::vector<std::string> missing;
  ranks_.resize(static_cast<std::size_t>(division_.tensor));
  for (const int number : numbers) {
    for (int t = 0; t < division_.tensor; ++t) {
      const auto found = layers.find({number, t});
      if (found == layers.end()) {
        missing.push_back(fmt::format("layer_{:02}-model_{:02}-model_states.pt", number, t));
        continue;
      }
      const TorchFile& file = open(found->second);
      if (first_ == nullptr) first_ = &file;
      ranks_[static_cast<std::size_t>(t)].push_back(
          {.file = &file, .tree = &file.root(), .prefix = fmt::format("{}.", number)});
    }
  }
  if (!missing.empty()) {
    throw Error(Fault::kData, "{}: {} files are missing: {}; copy them too", folder_.string(),
                missing.size(), listed(missing));
  }
}

std::string DeepSpeedFiles::file_of(int t, int) const {
  return ranks_[static_cast<std::size_t>(t)].front().file->file().path().string();
}

// Under its name in Megatron's tree. `tied`: those that were added; the last stage has a copy of
// what it ties.
void DeepSpeedFiles::add_to(NamedTensors& named, std::set<std::string>& tied,
                            const std::string& stored,
                            const std::function<BoxedTensor()>& make) const {
  const std::string name = pipeline_ ? name_in_tree(stored) : stored;
  if (pipeline_ && stored.starts_with("tied_modules.") && !tied.insert(name).second) return;
  named.add(name, make);
}

BoxedTensors DeepSpeedFiles::tensors(int t, int, int) const {
  NamedTensors named(file_of(t, 0));
  std::set<std::string> tied;
  for (const Part& part : ranks_[static_cast<std::size_t>(t)]) {
    visit_tensors(*part.tree, [&](const std::string& stored, const PickleValue& value) {
      const std::string whole = part.prefix + stored;
      add_to(named, tied, whole, [&] {
        return boxed_tensor(part.file->file(), part.file->tensor(value, whole),
                            part.file->file().path().string(), whole);
      });
    });
  }
  return named.take();
}

// Of all stages: model ranks are numbered by stage * T + t.
BoxedTensors DeepSpeedFiles::states(int t, ZeroState state) {
  NamedTensors named(file_of(t, 0));
  std::set<std::string> tied;
  for (std::size_t number = static_cast<std::size_t>(t); number < rank_files_.size();
       number += static_cast<std::size_t>(division_.tensor)) {
    const TorchFile& file = *rank_files_[number];
    const BoxedTensors stored =
        optimizer_.tensors(static_cast<int>(number), file.root().find("param_shapes"), state,
                           file.file().path().string());
    for (const auto& one : stored) add_to(named, tied, one.first, [&] { return one.second; });
  }
  return named.take();
}

BoxedTensors DeepSpeedFiles::masters(int t, int, int) {
  return optimizer_.found() ? states(t, ZeroState::kWeight) : BoxedTensors();
}

BoxedMoments DeepSpeedFiles::moments(int t, int, int) {
  if (!optimizer_.found()) {
    throw Error(Fault::kData,
                "{}: has no zero_pp_rank_D_mp_rank_NN_optim_states.pt; other optimizers of "
                "DeepSpeed are not read",
                folder_.string());
  }
  return {.first = states(t, ZeroState::kFirstMoment),
          .second = states(t, ZeroState::kSecondMoment)};
}

}  // namespace piton
