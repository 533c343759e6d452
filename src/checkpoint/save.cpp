// One function per phase of a save; all ranks wait for each other between phases.
#include <algorithm>
#include <map>
#include <system_error>

#include "base/regular_file.h"
#include "checkpoint/collective.h"
#include "checkpoint/file_plan.h"
#include "checkpoint/store.h"
#include "checkpoint/written_parts.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

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

// The files that this rank writes into, opened at the first write.
class OpenFiles {
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

// Writes one job; `data` is the first element of the holding.
void write_job(const WriteJob& job, const Holding& holding, const std::byte* data,
               const FilePlan& plan, OpenFiles& files) {
  const StoredTensor& stored = plan.tensors[plan.index.at(holding.tensor.name)];
  const std::int64_t width = size_bytes(holding.tensor.dtype);
  DiskFile& file = files.get(stored.file);
  for_each_stretch(holding.tensor.shape, holding.start, holding.extent, job.begin, job.end,
                   [&](std::int64_t at, std::int64_t element, std::int64_t count) {
                     file.write_at(stored.offset + at * width,
                                   {data + (element - holding.begin) * width,
                                    static_cast<std::size_t>(count * width)});
                   });
}

// All sources of holdings in one list: first parameters, then the tensors of each span.
struct Sources {
  std::vector<Parameter*> parameters;
  std::vector<Tensor> state;
};

std::vector<Holding> collect(const StoredModel& model, Sources& sources) {
  std::vector<Holding> holdings;
  const auto add = [&](std::vector<Holding> more) {
    holdings.insert(holdings.end(), more.begin(), more.end());
  };
  sources.parameters = model.parameters;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const Parameter& parameter = *model.parameters[i];
    add(holdings_of(parameter, 0, parameter.elements(), "", parameter.dtype, i));
  }
  if (model.optimizer == nullptr) return holdings;
  const auto add_state = [&](const OptimizerState& state, const std::string& prefix,
                             const Tensor& tensor) {
    add(holdings_of(*state.parameter, state.offset, state.size(), prefix, DType::kF32,
                    sources.parameters.size() + sources.state.size()));
    sources.state.push_back(tensor);
  };
  for (const OptimizerState& state : model.optimizer->state()) {
    if (!state.main_is_value) add_state(state, kMainPrefix, state.main);
    for (const Moment& moment : state.moments) {
      add_state(state, fmt::format("{}.", moment.name), moment.values);
    }
  }
  return holdings;
}

// Everything that a save must know before its first byte.
struct Layout {
  Sources sources;
  std::vector<Holding> holdings;
  WritePlan writes;
  FilePlan plan;
};

Layout lay_out(const StoredModel& model, Communicator& ranks, const SaveOptions& options) {
  Layout layout;
  layout.holdings = collect(model, layout.sources);
  layout.writes = plan_writes(layout.holdings, ranks);
  std::vector<CanonicalTensor> weights, moments;
  for (const CanonicalTensor& tensor : layout.writes.tensors) {
    (tensor.kind == TensorKind::kWeight ? weights : moments).push_back(tensor);
  }
  add_files(layout.plan, weights, "model", options.file_bytes);
  add_files(layout.plan, moments, "optimizer", options.file_bytes);
  return layout;
}

// Returns the hashes of the written bytes, computed from memory.
std::vector<WrittenPart> write_tensors(const fs::path& folder, const StoredModel& model,
                                       const StoreContext& context, const Layout& layout,
                                       const Disk& disk, FirstFault& fault) {
  const Sources& sources = layout.sources;
  const WritePlan& writes = layout.writes;
  std::vector<WrittenPart> parts;
  OpenFiles files(folder, disk);
  std::size_t next = 0;
  const auto write_source = [&](std::size_t source, const Tensor& tensor, Device& device) {
    fault.run([&] {
      std::optional<HostBytes> bytes;  // of a source that this rank has to write
      while (next < writes.jobs.size() &&
             layout.holdings[writes.jobs[next].holding].source == source) {
        const WriteJob& job = writes.jobs[next++];
        const Holding& holding = layout.holdings[job.holding];
        if (!bytes) bytes.emplace(tensor.flatten(), device, context.stream);
        const std::int64_t width = size_bytes(holding.tensor.dtype);
        const std::byte* data = bytes->data() + holding.source_offset * width;
        parts.push_back(
            {.tensor = layout.plan.index.at(holding.tensor.name),
             .run = {holding.start, holding.extent, job.begin, job.end},
             .hash = hash_bytes({data + (job.begin - holding.begin) * width,
                                 static_cast<std::size_t>((job.end - job.begin) * width)})});
        write_job(job, holding, data, layout.plan, files);
      }
    });
  };
  for (std::size_t i = 0; i < sources.parameters.size(); ++i) {
    // Collective for the ranks that share a value: those with a fault take part too.
    Parameter& parameter = *sources.parameters[i];
    write_source(i,
                 model.sharded == nullptr ? parameter.value
                                          : model.sharded->whole_value(parameter, context.stream),
                 context.device);
  }
  for (std::size_t i = 0; i < sources.state.size(); ++i) {
    write_source(sources.parameters.size() + i, sources.state[i], model.optimizer->state_device());
  }
  fault.run([&] {
    PITON_ASSERT(next == writes.jobs.size());
    files.sync();
  });
  return parts;
}

// Hashes each tensor on one rank.
void hash_tensors(const fs::path& folder, FilePlan& plan, const std::vector<WrittenPart>& mine,
                  bool verify, const Disk& disk, Communicator& ranks) {
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
      if (known && !verify) {
        hashes += *known;
        continue;
      }
      auto file = files.find(one.file);
      if (file == files.end()) {
        if (verify) disk.forget(folder / one.file);
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

void remove_old(const fs::path& dir, std::int64_t newest, int keep, const Disk& disk) {
  std::vector<std::int64_t> iterations;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
    const std::optional<std::int64_t> iteration = iteration_of(entry.path().filename().string());
    // Other programs use the same names for their checkpoints: those and links are kept.
    const bool ours = fs::is_directory(entry.symlink_status()) &&
                      fs::is_regular_file(entry.path() / kManifestName);
    if (iteration && *iteration < newest && ours) iterations.push_back(*iteration);
  }
  std::sort(iterations.rbegin(), iterations.rend());
  for (std::size_t i = static_cast<std::size_t>(keep) - 1; i < iterations.size(); ++i) {
    // Rename first: half a checkpoint must not look like a whole one.
    const fs::path folder = dir / iteration_folder(iterations[i]);
    fs::path doomed = folder;
    doomed += kUnfinished;
    disk.rename(folder, doomed);
    disk.remove_tree(doomed);
  }
}

}  // namespace

Communicator& save_group(Mesh& mesh) { return mesh.group(kAllAxes, "save"); }

void check_room(const fs::path& dir, const StoredModel& model, const StoreContext& context,
                const SaveOptions& options) {
  Communicator& ranks = save_group(context.mesh);
  const Layout layout = lay_out(model, ranks, options);
  phase(ranks, 0, [&] { check_space(dir, layout.plan); });
}

fs::path save_checkpoint(const fs::path& dir, const StoredModel& model, const StoreContext& context,
                         TrainState state, const std::string& config, const SaveOptions& options) {
  PITON_ASSERT(state.iteration >= 0 && options.keep >= 0 && options.file_bytes > 0);
  Communicator& ranks = save_group(context.mesh);
  const Disk disk(options.hook);
  if (model.optimizer != nullptr) {
    const OptimizerProgress& progress = model.optimizer->progress();
    state.optimizer_steps = progress.steps;
    state.skipped_steps = progress.skipped;
    state.loss_scale = progress.loss_scale;
    state.good_updates = progress.good_updates;
    state.hysteresis_left = progress.hysteresis_left;
    state.spike_history = progress.history;
  }
  Layout layout = lay_out(model, ranks, options);
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
    const std::vector<WrittenPart> parts =
        write_tensors(unfinished, model, context, layout, disk, fault);
    agree(ranks, fault);
    hash_tensors(unfinished, layout.plan, parts, options.verify, disk, ranks);
    phase(ranks, 0, [&] {
      write_texts(unfinished, layout.plan, state, config, disk);
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
    if (options.keep > 0) remove_old(dir, state.iteration, options.keep, disk);
  });
  return folder;
}

}  // namespace piton
