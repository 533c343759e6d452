// Loading: finds the checkpoint, checks that it fits the run and is intact, then reads its values.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <map>
#include <set>
#include <system_error>

#include "base/files/file_failure.h"
#include "base/files/regular_file.h"
#include "checkpoint/collective.h"
#include "checkpoint/load_values.h"
#include "checkpoint/native_source.h"
#include "checkpoint/store.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

bool present(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

void check_types(const fs::path& folder, const std::vector<CanonicalTensor>& wanted,
                 const Manifest& manifest) {
  std::map<std::string, DType> stored;
  for (const StoredTensor& one : manifest.tensors) stored[one.tensor.name] = one.tensor.dtype;
  for (const CanonicalTensor& tensor : wanted) {
    const auto found = stored.find(tensor.name);
    if (found == stored.end() || found->second == tensor.dtype) continue;
    throw Error(
        Fault::kData,
        "checkpoint: {}: {} is {}, this model has {}; continue a run in the type it was saved in, "
        "or load its weights alone",
        folder.string(), tensor.name, name(found->second), name(tensor.dtype));
  }
}

// The optimizer is known by its moments: "exp_avg, exp_avg_sq", "momentum_buffer", "".
std::string moment_names(const std::vector<CanonicalTensor>& tensors) {
  std::set<std::string> names;
  for (const CanonicalTensor& tensor : tensors) {
    const std::string name = tensor.name.substr(0, tensor.name.find('.') + 1);
    if (name != kMainPrefix) names.insert(name.substr(0, name.size() - 1));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void check_kind(const fs::path& folder, const std::vector<CanonicalTensor>& wanted,
                const Manifest& manifest) {
  std::vector<CanonicalTensor> stored;
  for (const StoredTensor& one : manifest.tensors) {
    if (one.tensor.kind == TensorKind::kOptimizer) stored.push_back(one.tensor);
  }
  const std::string got = moment_names(stored);
  const std::string want = moment_names(wanted);
  if (got == want) return;
  throw Error(
      Fault::kData,
      "checkpoint: {}: got the state of another optimizer ({}), wanted {}; continue with the "
      "--optimizer it was saved with, or load its weights alone",
      folder.string(), got.empty() ? "nothing but weights" : got,
      want.empty() ? "nothing but weights" : want);
}

std::string checked_hash(const fs::path& folder, TensorKind kind) {
  const Manifest manifest = read_manifest(folder);
  const bool optimizer = kind == TensorKind::kOptimizer;
  if (optimizer && !manifest.has_optimizer()) return "";
  NativeSource source(folder, manifest, optimizer);
  source.check_headers();
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
    if (manifest.tensors[i].tensor.kind == kind) source.check_hash(i);
  }
  return hash_of(manifest, kind);
}

}  // namespace

std::optional<std::int64_t> latest_iteration(const fs::path& dir) {
  const fs::path tracker = dir / kTrackerName;
  if (!present(tracker)) return std::nullopt;
  std::string text = read_regular_file(tracker, 1024);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ' || text.back() == '\r'))
    text.pop_back();
  if (text == "release") {  // Megatron's word for weights without a run
    throw Error(Fault::kData, "{}: names release, and no checkpoint of Megatron is there",
                tracker.string());
  }
  std::int64_t iteration = -1;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), iteration);
  if (error != std::errc() || stop != text.data() + text.size() || iteration < 0) {
    throw Error(Fault::kData, "checkpoint: {}: got \"{}\", wanted the number of an iteration",
                tracker.string(), text.substr(0, text.find('\n')));
  }
  return iteration;
}

fs::path find_checkpoint(const fs::path& path) {
  if (present(path / kManifestName)) return path;
  if (!fs::is_directory(path)) {
    throw Error(Fault::kData, "{}: {}, wanted the folder of a run or of a model", path.string(),
                present(path) ? "is a file" : "there is no such folder");
  }
  if (::access(path.c_str(), R_OK | X_OK) != 0) throw_file_failure(path, "open", errno);
  std::optional<std::int64_t> before;
  for (;;) {
    const std::optional<std::int64_t> iteration = latest_iteration(path);
    if (!iteration) {
      if (present(path / "adapter_config.json")) {
        throw Error(Fault::kData,
                    "{}: is an adapter of PEFT, wanted a model; give its base by --load, and the "
                    "adapter by --lora-load",
                    path.string());
      }
      throw Error(Fault::kData,
                  "checkpoint: {}: no checkpoint: got neither {} nor {} in it, and no model of "
                  "another program (config.json with weights, mp_rank_*, .metadata)",
                  path.string(), kTrackerName, kManifestName);
    }
    const fs::path folder = path / iteration_folder(*iteration);
    if (present(folder)) return folder;
    // A save that replaced this iteration was interrupted where names cannot be exchanged.
    fs::path aside = folder;
    aside += ".replaced";
    if (present(aside)) return aside;
    // A run may have removed it after it saved the next one.
    if (iteration == before) {
      throw Error(Fault::kData, "checkpoint: {}: {} names iteration {}, but there is no {}",
                  path.string(), kTrackerName, *iteration, folder.filename().string());
    }
    before = iteration;
  }
}

std::optional<fs::path> older_checkpoint(const fs::path& dir,
                                         std::optional<std::int64_t> iteration) {
  std::optional<std::int64_t> newest;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, ignored)) {
    const std::optional<std::int64_t> number = iteration_of(entry.path().filename().string());
    if (number && (!iteration || *number < *iteration) && entry.is_directory(ignored)) {
      newest = std::max(newest.value_or(*number), *number);
    }
  }
  if (!newest) return std::nullopt;
  return dir / iteration_folder(*newest);
}

TrainState load_checkpoint(const fs::path& folder, const StoredModel& model,
                           const StoreContext& context, bool* damaged) {
  bool unused = false;
  bool& reads = damaged != nullptr ? *damaged : unused;
  Communicator& ranks = context.mesh.group(kAllAxes);
  const bool optimizer = model.optimizer != nullptr;
  const std::vector<CanonicalTensor> weights = tensors_of(model, TensorKind::kWeight, ranks);
  const std::vector<CanonicalTensor> moments = tensors_of(model, TensorKind::kOptimizer, ranks);

  TrainState state;
  Manifest manifest;
  std::optional<NativeSource> source;
  reads = true;
  phase(ranks, std::nullopt, [&] {
    manifest = read_manifest(folder);
    state = read_state(folder, manifest);
    read_config(folder, manifest);  // not used here, but under the same promise
    source.emplace(folder, manifest, optimizer);
    source->check_headers();
  });
  reads = false;
  phase(ranks, std::nullopt, [&] {
    check_tensors(*source, weights, TensorKind::kWeight);
    if (!moments.empty() && !manifest.has_optimizer()) {
      throw Error(
          Fault::kData,
          "checkpoint: {}: it holds no optimizer state: --no-load-optim continues with a new "
          "optimizer, --finetune starts a new run from the weights",
          folder.string());
    }
    if (optimizer) {
      check_types(folder, weights, manifest);
      check_kind(folder, moments, manifest);
      check_tensors(*source, moments, TensorKind::kOptimizer);
      check_types(folder, moments, manifest);
    }
  });
  reads = true;
  source->share_checks(ranks.rank(), ranks.size());
  load_values(*source, model, context);
  phase(ranks, std::nullopt, [&] { source->check_rest(); });
  reads = false;
  if (optimizer) {
    model.optimizer->set_progress({.steps = state.optimizer_steps,
                                   .skipped = state.skipped_steps,
                                   .loss_scale = state.loss_scale,
                                   .good_updates = state.good_updates,
                                   .hysteresis_left = state.hysteresis_left,
                                   .history = state.spike_history});
  }
  ranks.barrier();
  return state;
}

std::string weights_hash(const fs::path& folder) {
  return checked_hash(folder, TensorKind::kWeight);
}
std::string optimizer_hash(const fs::path& folder) {
  return checked_hash(folder, TensorKind::kOptimizer);
}

}  // namespace piton
