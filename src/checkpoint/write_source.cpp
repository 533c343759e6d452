#include "checkpoint/write_source.h"

#include <map>
#include <memory>

#include "base/hash.h"
#include "checkpoint/assembly.h"
#include "checkpoint/file_plan.h"

namespace piton {

namespace fs = std::filesystem;

void write_checkpoint(const fs::path& dir, TensorSource& source, const TrainState& state,
                      const std::string& config, const WriteSourceOptions& options) {
  std::vector<CanonicalTensor> tensors = source.tensors(TensorKind::kWeight);
  for (CanonicalTensor& tensor : tensors) tensor.dtype = options.dtype.value_or(tensor.dtype);
  FilePlan plan;
  add_files(plan, tensors, "model", options.file_bytes);
  check_space(dir, plan);
  const Disk disk;
  const fs::path folder = dir / iteration_folder(state.iteration);
  fs::path unfinished = folder;
  unfinished += kUnfinished;
  create_files(unfinished, plan, disk);
  std::map<std::string, DiskFile> files;
  for (const TensorFile& file : plan.files)
    files.emplace(file.name, DiskFile(disk, unfinished / file.name));
  for (StoredTensor& stored : plan.tensors) {
    const Shape& shape = stored.tensor.shape;
    StreamHash hash;
    std::int64_t at = stored.offset;
    DiskFile& file = files.at(stored.file);
    assemble(source, Assembly::of(stored.tensor.name, shape), stored.tensor.dtype,
             [&](std::span<const std::byte> bytes) {
               file.write_at(at, bytes);
               hash.add(bytes);
               at += static_cast<std::int64_t>(bytes.size());
               if (options.wrote) options.wrote(static_cast<std::int64_t>(bytes.size()));
             });
    stored.hash = hash.hex();
  }
  for (auto& [name, file] : files) file.sync();
  write_texts(unfinished, plan, state, config, disk);
  publish(dir, unfinished, folder, state.iteration, disk);
}

}  // namespace piton
