#include "checkpoint/save_files.h"

#include <algorithm>
#include <map>
#include <system_error>

#include "base/files/regular_file.h"
#include "base/hash.h"

namespace piton {

namespace fs = std::filesystem;

// The files that this rank writes into, opened at the first write.
class JobWriter::OpenFiles {
 public:
  OpenFiles(const fs::path& folder, const Disk& disk) : folder_(folder), disk_(disk) {}

  DiskFile& get(const std::string& name) {
    const auto found = files_.find(name);
    if (found != files_.end()) return found->second;
    return files_.emplace(name, DiskFile(disk_, folder_ / name)).first->second;
  }
  void sync() {
    for (auto& [name, file] : files_) file.sync();
  }

 private:
  fs::path folder_;
  const Disk& disk_;
  std::map<std::string, DiskFile> files_;
};

namespace {

// Removes what crashed saves left: unfinished folders, and one that a save was about to replace.
void remove_leftovers(const fs::path& dir, const Disk& disk) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, error))
    found.push_back(entry.path());
  for (const fs::path& path : found) {
    const std::string stem = path.stem().string();
    if (!iteration_of(stem)) continue;
    if (path.extension() == kReplaced && !fs::exists(dir / stem)) {
      disk.rename(path, dir / stem);
    } else if (path.extension() == kUnfinished || path.extension() == kReplaced) {
      disk.remove_tree(path);
    }
  }
}

// Hashes each block and writes it while it is in the caches.
void write_hashed(DiskFile& file, std::int64_t offset, std::span<const std::byte> bytes,
                  StreamHash& hash) {
  constexpr std::size_t kHashedBytes = std::size_t{512} << 10;
  while (!bytes.empty()) {
    const auto block = bytes.first(std::min(bytes.size(), kHashedBytes));
    hash.add(block);
    file.write_at(offset, block);
    offset += static_cast<std::int64_t>(block.size());
    bytes = bytes.subspan(block.size());
  }
}

// Hashes each tensor on one rank: the bytes in memory or, with `disk`, those read back from it.
void hash_tensors(const fs::path& folder, FilePlan& plan, const std::vector<WrittenPart>& mine,
                  const Disk* disk, Communicator& ranks) {
  const PartsOfTensors parts = gather_parts(mine, plan.tensors.size(), ranks);
  std::vector<std::int64_t> sizes;
  for (const StoredTensor& one : plan.tensors) sizes.push_back(one.bytes);
  const std::vector<int> workers = spread(sizes, ranks.size());
  std::string hashes;
  FirstFault fault;
  fault.run([&] {
    std::map<std::string, RegularFile> files;
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
      if (workers[i] != ranks.rank()) continue;
      const StoredTensor& one = plan.tensors[i];
      const std::optional<std::string> known = hash_of_one_writer(one, parts[i]);
      if (known && disk == nullptr) {
        hashes += *known;
        continue;
      }
      auto file = files.find(one.file);
      if (file == files.end()) {
        if (disk != nullptr) disk->forget(folder / one.file);
        file = files.try_emplace(one.file, folder / one.file).first;
      }
      hashes += hash_read_back(one, parts[i], file->second);
    }
  });
  agree(ranks, fault);
  const std::vector<std::string> all = ranks.gather_bytes(hashes);
  std::vector<std::size_t> at(all.size(), 0);
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    std::size_t& position = at[workers[i]];
    plan.tensors[i].hash = all[workers[i]].substr(position, 32);
    position += 32;
  }
}

void remove_old(const fs::path& dir, std::int64_t newest, const SaveOptions& options,
                const Disk& disk) {
  std::vector<std::int64_t> iterations, damaged;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
    const std::optional<std::int64_t> iteration = iteration_of(entry.path().filename().string());
    // Other programs use the same names for their checkpoints: those and links are kept.
    const bool ours = fs::is_directory(entry.symlink_status()) &&
                      fs::is_regular_file(entry.path() / kManifestName);
    if (!iteration || *iteration >= newest || !ours) continue;
    const bool is_damaged = std::ranges::count(options.damaged, *iteration) > 0;
    (is_damaged ? damaged : iterations).push_back(*iteration);
  }
  std::sort(iterations.rbegin(), iterations.rend());
  const std::size_t kept = std::min(iterations.size(), static_cast<std::size_t>(options.keep) - 1);
  iterations.erase(iterations.begin(), iterations.begin() + static_cast<std::ptrdiff_t>(kept));
  if (options.retain_interval > 0)
    std::erase_if(iterations, [&](std::int64_t one) { return one % options.retain_interval == 0; });
  if (options.best) std::erase(iterations, *options.best);
  iterations.insert(iterations.end(), damaged.begin(), damaged.end());
  for (const std::int64_t iteration : iterations) {
    // Rename first: half a checkpoint must not look like a whole one.
    const fs::path folder = dir / iteration_folder(iteration);
    fs::path doomed = folder;
    doomed += kUnfinished;
    disk.rename(folder, doomed);
    disk.remove_tree(doomed);
  }
}

}  // namespace

JobWriter::JobWriter(const fs::path& folder, const SaveLayout& layout, const Disk& disk)
    : layout_(layout), files_(std::make_unique<OpenFiles>(folder, disk)) {}

JobWriter::~JobWriter() = default;

void JobWriter::write(const WriteJob& job, const std::byte* data) {
  const Holding& holding = layout_.holding(job);
  const std::size_t index = layout_.plan.index.at(holding.tensor.name);
  const StoredTensor& stored = layout_.plan.tensors[index];
  const std::int64_t width = size_bytes(holding.tensor.dtype);
  DiskFile& file = files_->get(stored.file);
  StreamHash hash;
  for_each_stretch(
      holding.tensor.shape, {holding.start, holding.extent, job.begin, job.end},
      [&](std::int64_t at, std::int64_t element, std::int64_t count) {
        write_hashed(
            file, stored.offset + at * width,
            {data + (element - job.begin) * width, static_cast<std::size_t>(count * width)}, hash);
      });
  parts_.push_back({.tensor = index,
                    .run = {holding.start, holding.extent, job.begin, job.end},
                    .hash = hash.hex()});
}

void JobWriter::finish() {
  PITON_ASSERT(parts_.size() == layout_.writes.jobs.size());
  files_->sync();
}

fs::path write_save(const SaveOrder& order, SaveLayout& layout, Communicator& ranks,
                    const GiveBytes& give) {
  const fs::path& dir = order.dir;
  const TrainState& state = order.state;
  const SaveOptions& options = order.options;
  const Disk disk(options.hook);
  const fs::path folder = dir / iteration_folder(state.iteration);
  fs::path unfinished = folder;
  unfinished += kUnfinished;
  bool laid_out = false;
  try {
    phase(ranks, 0, [&] {
      if (!fs::exists(dir)) disk.make_folder(dir);
      remove_leftovers(dir, disk);
      check_space(dir, layout.plan);
      laid_out = true;
      create_files(unfinished, layout.plan, disk);
    });
    FirstFault fault;
    JobWriter writer(unfinished, layout, disk);
    give(writer, fault);
    fault.run([&] { writer.finish(); });
    agree(ranks, fault);
    hash_tensors(unfinished, layout.plan, writer.parts(), options.verify ? &disk : nullptr, ranks);
    phase(ranks, 0, [&] {
      write_texts(unfinished, layout.plan, state, order.config, disk);
      if (order.add_files) order.add_files(unfinished);
      publish(dir, unfinished, folder, state.iteration, disk);
    });
  } catch (const Error&) {
    // Free the space at once; if this fails too, the next save tries again.
    std::error_code ignored;
    if (laid_out) fs::remove_all(unfinished, ignored);
    throw;
  }
  // The new checkpoint is complete: remove what it replaced, and what is too old.
  phase(ranks, 0, [&] {
    disk.remove_tree(unfinished);
    fs::path aside = folder;
    aside += kReplaced;
    disk.remove_tree(aside);
    if (options.best == state.iteration)
      write_text_file(dir / kBestName, fmt::format("{}\n", state.iteration));
    if (options.keep > 0) remove_old(dir, state.iteration, options, disk);
  });
  return folder;
}

}  // namespace piton
