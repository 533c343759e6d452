#include "checkpoint/file_plan.h"

#include <algorithm>
#include <span>
#include <system_error>

#include "base/error.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

// For text files, headers, folders and a manifest, whose sizes are not known before: small compared
// with the weights.
constexpr std::int64_t kSpareBytes = std::int64_t{1} << 20;

// The nearest parent folder that exists.
fs::path existing(fs::path dir) {
  std::error_code ignored;
  while (!dir.empty() && !fs::exists(dir, ignored)) dir = dir.parent_path();
  return dir.empty() ? fs::path(".") : dir;
}

}  // namespace

void add_files(FilePlan& plan, const std::vector<CanonicalTensor>& tensors, const std::string& stem,
               std::int64_t file_bytes) {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, CanonicalTensor> by_name;
  for (const CanonicalTensor& tensor : tensors) {
    const auto sizes = tensor.shape.sizes();
    entries.push_back({.name = tensor.name,
                       .dtype = std::string(safetensors_name(tensor.dtype)),
                       .shape = {sizes.begin(), sizes.end()}});
    by_name[tensor.name] = tensor;
  }
  sort_for_alignment(entries);
  const auto bytes_of_entry = [&](const SafetensorsEntry& entry) {
    const CanonicalTensor& tensor = by_name.at(entry.name);
    return tensor.shape.elements() * size_bytes(tensor.dtype);
  };
  int number = 0;
  for (std::size_t first = 0; first < entries.size();) {
    std::size_t last = first;
    std::int64_t bytes = 0;
    while (last < entries.size() &&
           (last == first || bytes + bytes_of_entry(entries[last]) <= file_bytes)) {
      bytes += bytes_of_entry(entries[last]);
      ++last;
    }
    std::vector<SafetensorsEntry> part(entries.begin() + static_cast<std::ptrdiff_t>(first),
                                       entries.begin() + static_cast<std::ptrdiff_t>(last));
    TensorFile file;
    file.name = fmt::format("{}-{:05}.safetensors", stem, ++number);
    file.header = make_safetensors_header(part, {{"format", "pt"}});
    file.bytes = static_cast<std::int64_t>(file.header.size()) + bytes;
    for (const SafetensorsEntry& entry : part) {
      plan.index[entry.name] = plan.tensors.size();
      plan.tensors.push_back({.tensor = by_name.at(entry.name),
                              .file = file.name,
                              .offset = static_cast<std::int64_t>(file.header.size()) + entry.begin,
                              .bytes = entry.bytes(),
                              .hash = {}});
    }
    plan.files.push_back(std::move(file));
    first = last;
  }
}

void check_space(const fs::path& dir, const FilePlan& plan) {
  std::int64_t needed = kSpareBytes;
  for (const TensorFile& file : plan.files) needed += file.bytes;
  const std::int64_t free = Disk::free_bytes(existing(dir));
  if (free < needed) {
    throw Error(
        Fault::kData,
        "checkpoint: {}: not enough disk space: got {:.3f} GB, wanted {:.3f} GB; free some, save "
        "elsewhere, or keep fewer checkpoints",
        dir.string(), static_cast<double>(free) * 1e-9, static_cast<double>(needed) * 1e-9);
  }
}

void create_files(const fs::path& folder, const FilePlan& plan, const Disk& disk) {
  disk.remove_tree(folder);
  disk.make_folder(folder);
  for (const TensorFile& file : plan.files) {
    disk.create(folder / file.name, file.bytes);
    DiskFile out(disk, folder / file.name);
    out.write_at(0, std::as_bytes(std::span(file.header)));
    out.sync();
  }
}

void write_texts(const fs::path& folder, const FilePlan& plan, const TrainState& state,
                 const std::string& config, const Disk& disk) {
  Manifest manifest;
  manifest.iteration = state.iteration;
  manifest.tensors = plan.tensors;
  for (const TensorFile& file : plan.files) {
    manifest.files.push_back({file.name, file.bytes, static_cast<std::int64_t>(file.header.size()),
                              hash_bytes(std::as_bytes(std::span(file.header)))});
  }
  const auto write = [&](const char* name, const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    disk.write_file(folder / name, bytes);
    manifest.files.push_back({name, static_cast<std::int64_t>(text.size()),
                              static_cast<std::int64_t>(text.size()), hash_bytes(bytes)});
  };
  write(kStateName, to_json(state));
  write(kConfigName, config);
  const std::string text = to_json(manifest);
  disk.write_file(folder / kManifestName, std::as_bytes(std::span(text)));
  disk.sync_folder(folder);
}

void publish(const fs::path& dir, const fs::path& unfinished, const fs::path& folder,
             std::int64_t iteration, const Disk& disk) {
  if (!fs::exists(folder)) {
    disk.rename(unfinished, folder);
  } else if (!disk.exchange(unfinished, folder)) {
    // Between these two renames, a load finds the old checkpoint under its .replaced name.
    fs::path aside = folder;
    aside += kReplaced;
    disk.remove_tree(aside);
    disk.rename(folder, aside);
    disk.rename(unfinished, folder);
  }
  disk.sync_folder(dir);
  const std::string text = fmt::format("{}\n", iteration);
  const fs::path draft = dir / (std::string(kTrackerName) + kUnfinished);
  disk.write_file(draft, std::as_bytes(std::span(text)));
  disk.rename(draft, dir / kTrackerName);
  disk.sync_folder(dir);
}

}  // namespace piton
