// Loading: what must be there, whether its bytes are whole, and then the regions of this rank.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <set>
#include <system_error>

#include "base/files.h"
#include "base/hash.h"
#include "base/regular_file.h"
#include "checkpoint/collective.h"
#include "checkpoint/store.h"
#include "checkpoint/values.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

bool present(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

constexpr std::size_t kListed = 8;  // tensors that a message names

std::string first_of(const std::vector<std::string>& names) {
  const std::size_t count = std::min(names.size(), kListed);
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count), ", "));
  if (names.size() > count) text += fmt::format(" and {} more", names.size() - count);
  return text;
}

// Compares what the ranks want with what the checkpoint has, both of one kind.
void check_tensors(const fs::path& folder, const std::vector<CanonicalTensor>& wanted,
                   const Manifest& manifest, TensorKind kind) {
  std::map<std::string, const StoredTensor*> stored;
  for (const StoredTensor& one : manifest.tensors) {
    if (one.tensor.kind == kind) stored[one.tensor.name] = &one;
  }
  std::vector<std::string> missing, unknown, shapes;
  for (const CanonicalTensor& tensor : wanted) {
    const auto found = stored.find(tensor.name);
    if (found == stored.end()) {
      missing.push_back(tensor.name);
      continue;
    }
    if (found->second->tensor.shape != tensor.shape) {
      shapes.push_back(fmt::format("{} is {}, this model has {}", tensor.name,
                                   to_string(found->second->tensor.shape),
                                   to_string(tensor.shape)));
    }
    stored.erase(found);
  }
  for (const auto& [name, one] : stored) unknown.push_back(name);
  if (!shapes.empty()) {
    throw Error(Fault::kData,
                "checkpoint: {}: {}; is the checkpoint from another size of this model?",
                folder.string(), first_of(shapes));
  }
  if (!missing.empty() || !unknown.empty()) {
    std::string what;
    if (!missing.empty())
      what += fmt::format("{} tensors are missing: {}", missing.size(), first_of(missing));
    if (!unknown.empty()) {
      what += fmt::format("{}{} tensors are not of this model: {}", what.empty() ? "" : "; ",
                          unknown.size(), first_of(unknown));
    }
    throw Error(Fault::kData, "checkpoint: {}: {}; is the checkpoint from another model?",
                folder.string(), what);
  }
}

// The tensor files of a checkpoint, mapped when first asked for.
class StoredFiles {
 public:
  StoredFiles(fs::path folder, const Manifest& manifest)
      : folder_(std::move(folder)), manifest_(manifest) {}

  // Headers and lengths against the manifest, of every file that holds a tensor of those kinds.
  // Files of optimizer state may have been removed where weights alone are loaded; those that are
  // there are looked at all the same.
  void check_headers(bool optimizer) {
    std::map<std::string, std::map<std::string, const StoredTensor*>> by_file;
    std::set<std::string> wanted;
    for (const StoredTensor& one : manifest_.tensors) {
      by_file[one.file][one.tensor.name] = &one;
      if (optimizer || one.tensor.kind == TensorKind::kWeight) wanted.insert(one.file);
    }
    for (const auto& [name, tensors] : by_file) {
      if (wanted.contains(name) || present(folder_ / name)) check_header(name, tensors);
    }
  }

  std::span<const std::byte> bytes(const StoredTensor& one) {
    return open(one.file).bytes().subspan(static_cast<std::size_t>(one.offset),
                                          static_cast<std::size_t>(one.bytes));
  }

  void check_hash(const StoredTensor& one) {
    const std::string hash = hash_bytes(bytes(one));
    if (hash == one.hash) return;
    throw Error(
        Fault::kData,
        "checkpoint: {}: {}: its bytes were changed since they were saved: their hash is {}, the "
        "manifest says {}; load an earlier checkpoint",
        (folder_ / one.file).string(), one.tensor.name, hash, one.hash);
  }

 private:
  MappedFile& open(const std::string& name) {
    return files_.try_emplace(name, folder_ / name).first->second;
  }

  void check_header(const std::string& name,
                    const std::map<std::string, const StoredTensor*>& tensors) {
    const std::string where = (folder_ / name).string();
    const auto stored = std::find_if(manifest_.files.begin(), manifest_.files.end(),
                                     [&](const StoredFile& one) { return one.name == name; });
    PITON_ASSERT(stored != manifest_.files.end(), "{} is not listed", name);
    const std::span<const std::byte> bytes = open(name).bytes();
    if (static_cast<std::int64_t>(bytes.size()) != stored->bytes) {
      throw Error(Fault::kData, "checkpoint: {}: got {} bytes, wanted {}; is the copy complete?",
                  where, bytes.size(), stored->bytes);
    }
    if (hash_bytes(bytes.first(static_cast<std::size_t>(stored->hashed_bytes))) != stored->hash) {
      throw Error(Fault::kData, "checkpoint: {}: its header was changed since it was saved", where);
    }
    const SafetensorsHeader header = parse_safetensors(bytes, where);
    const auto differ = [&](const std::string& what) {
      throw Error(Fault::kData, "checkpoint: {}: {}: file and manifest.json say different things",
                  where, what);
    };
    if (header.data_begin != stored->hashed_bytes) differ("the length of its header");
    // Both ways: a tensor that only the file has would be bytes that no hash covers.
    for (const SafetensorsEntry& entry : header.entries) {
      const auto found = tensors.find(entry.name);
      if (found == tensors.end()) differ(entry.name);
      const StoredTensor& one = *found->second;
      const auto sizes = one.tensor.shape.sizes();
      if (header.data_begin + entry.begin != one.offset || entry.bytes() != one.bytes ||
          entry.dtype != safetensors_name(one.tensor.dtype) ||
          !std::equal(sizes.begin(), sizes.end(), entry.shape.begin(), entry.shape.end())) {
        differ(entry.name);
      }
    }
    if (header.entries.size() != tensors.size()) differ("the number of tensors");
  }

  fs::path folder_;
  const Manifest& manifest_;
  std::map<std::string, MappedFile> files_;
};

// Each tensor is read and hashed by one rank.
void check_hashes(StoredFiles& files, const Manifest& manifest, bool optimizer, int rank,
                  int ranks) {
  std::vector<const StoredTensor*> tensors;
  std::vector<std::int64_t> sizes;
  for (const StoredTensor& one : manifest.tensors) {
    if (!optimizer && one.tensor.kind == TensorKind::kOptimizer) continue;
    tensors.push_back(&one);
    sizes.push_back(one.bytes);
  }
  const std::vector<int> workers = spread(sizes, ranks);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (workers[i] == rank) files.check_hash(*tensors[i]);
  }
}

std::vector<Holding> weight_holdings(const StoredModel& model) {
  std::vector<Holding> holdings;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const Parameter& parameter = *model.parameters[i];
    const std::vector<Holding> more =
        holdings_of(parameter, 0, parameter.elements(), "", parameter.dtype, i);
    holdings.insert(holdings.end(), more.begin(), more.end());
  }
  return holdings;
}

class Loader {
 public:
  // Of what check_hashes() looked at, so of the weights alone without `optimizer`.
  Loader(StoredFiles& files, const Manifest& manifest, bool optimizer, const StoreContext& context)
      : files_(files), context_(context) {
    for (const StoredTensor& one : manifest.tensors) {
      if (optimizer || one.tensor.kind == TensorKind::kWeight) stored_[one.tensor.name] = &one;
    }
  }

  // A host tensor filled from the regions; what no region covers (padding) is 0.
  Tensor read(const std::vector<Holding>& holdings, DType dtype, std::int64_t elements) {
    Tensor result = host_tensor(dtype, {elements});
    const std::int64_t width = size_bytes(dtype);
    for (const Holding& holding : holdings) {
      const StoredTensor& stored = *stored_.at(holding.tensor.name);
      const std::byte* src = files_.bytes(stored).data();
      const std::int64_t src_width = size_bytes(stored.tensor.dtype);
      std::byte* dst = result.raw() + holding.source_offset * width;
      for_each_stretch(holding.tensor.shape, holding.start, holding.extent, holding.begin,
                       holding.end, [&](std::int64_t at, std::int64_t element, std::int64_t count) {
                         convert_values(src + at * src_width, stored.tensor.dtype,
                                        dst + (element - holding.begin) * width, dtype, count);
                       });
    }
    return result;
  }

  void load_weights(const StoredModel& model) {
    for (Parameter* parameter : model.parameters) {
      const Tensor host =
          read(holdings_of(*parameter, 0, parameter->elements(), "", parameter->dtype, 0),
               parameter->dtype, parameter->elements());
      if (model.sharded == nullptr) {
        PITON_ASSERT(parameter->value.defined(), "{} has no memory", parameter->name);
        context_.device.upload(host.raw(), parameter->value, context_.stream);
        ++parameter->version;
        continue;
      }
      const Tensor rows =
          context_.arena.allocate(parameter->dtype, parameter->shape, MemoryKind::kWorkspace);
      context_.device.upload(host.raw(), rows, context_.stream);
      model.sharded->set_value(*parameter, rows, context_.stream);
    }
    if (model.sharded != nullptr) model.sharded->publish_values(context_.stream);
  }

  void load_state(Optimizer& optimizer, const TrainState& state) {
    for (const OptimizerState& span : optimizer.state()) {
      const auto load = [&](const std::string& prefix, const Tensor& dst) {
        const Tensor host =
            read(holdings_of(*span.parameter, span.offset, span.size(), prefix, DType::kF32, 0),
                 DType::kF32, span.size());
        context_.device.upload(host.raw(), dst, context_.stream);
      };
      if (!span.main_is_value) load(kMainPrefix, span.main);
      for (const Moment& moment : span.moments)
        load(fmt::format("{}.", moment.name), moment.values);
    }
    optimizer.set_steps(state.optimizer_steps, state.skipped_steps);
  }

 private:
  StoredFiles& files_;
  StoreContext context_;
  std::map<std::string, const StoredTensor*> stored_;
};

std::vector<Holding> state_holdings(const Optimizer& optimizer) {
  std::vector<Holding> holdings;
  const auto add = [&](const OptimizerState& state, const std::string& prefix) {
    const std::vector<Holding> more =
        holdings_of(*state.parameter, state.offset, state.size(), prefix, DType::kF32, 0);
    holdings.insert(holdings.end(), more.begin(), more.end());
  };
  for (const OptimizerState& state : optimizer.state()) {
    if (!state.main_is_value) add(state, kMainPrefix);
    for (const Moment& moment : state.moments) add(state, fmt::format("{}.", moment.name));
  }
  return holdings;
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

// Moments of another optimizer have other names: "exp_avg, exp_avg_sq", "momentum_buffer", "".
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
  if (kind == TensorKind::kOptimizer && !manifest.has_optimizer()) return "";
  StoredFiles files(folder, manifest);
  files.check_headers(kind == TensorKind::kOptimizer);
  for (const StoredTensor& one : manifest.tensors) {
    if (one.tensor.kind == kind) files.check_hash(one);
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
  std::int64_t iteration = -1;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), iteration);
  if (error != std::errc() || stop != text.data() + text.size() || iteration < 0) {
    throw Error(Fault::kData, "checkpoint: {}: got \"{}\", wanted the number of an iteration",
                tracker.string(), text);
  }
  return iteration;
}

fs::path find_checkpoint(const fs::path& path) {
  if (present(path / kManifestName)) return path;
  const std::optional<std::int64_t> iteration = latest_iteration(path);
  if (!iteration) {
    throw Error(Fault::kData, "checkpoint: {}: no checkpoint: got neither {} nor {} in it",
                path.string(), kTrackerName, kManifestName);
  }
  const fs::path folder = path / iteration_folder(*iteration);
  // A save that was replacing this very iteration was cut off where names cannot be exchanged.
  fs::path aside = folder;
  aside += ".replaced";
  if (!present(folder) && present(aside)) return aside;
  if (!present(folder)) {
    throw Error(Fault::kData, "checkpoint: {}: {} names iteration {}, but there is no {}",
                path.string(), kTrackerName, *iteration, folder.filename().string());
  }
  return folder;
}

TrainState load_checkpoint(const fs::path& folder, const StoredModel& model,
                           const StoreContext& context) {
  Communicator& ranks = context.mesh.group(kAllAxes);
  const bool optimizer = model.optimizer != nullptr;
  const std::vector<CanonicalTensor> weights = all_tensors(weight_holdings(model), ranks);
  const std::vector<CanonicalTensor> moments =
      all_tensors(optimizer ? state_holdings(*model.optimizer) : std::vector<Holding>(), ranks);

  Manifest manifest;
  TrainState state;
  std::optional<StoredFiles> files;
  phase(ranks, std::nullopt, [&] {
    manifest = read_manifest(folder);
    state = read_state(folder, manifest);
    read_config(folder, manifest);  // not used here, but under the same promise
    check_tensors(folder, weights, manifest, TensorKind::kWeight);
    if (!moments.empty() && !manifest.has_optimizer()) {
      throw Error(Fault::kData,
                  "checkpoint: {}: it holds no optimizer state: a run cannot continue from "
                  "it; load its weights alone",
                  folder.string());
    }
    if (optimizer) {
      check_types(folder, weights, manifest);
      check_kind(folder, moments, manifest);
      check_tensors(folder, moments, manifest, TensorKind::kOptimizer);
    }
    files.emplace(folder, manifest);
    files->check_headers(optimizer);
    check_hashes(*files, manifest, optimizer, ranks.rank(), ranks.size());
  });
  Loader loader(*files, manifest, optimizer, context);
  loader.load_weights(model);
  if (optimizer) loader.load_state(*model.optimizer, state);
  context.stream.synchronize();
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
