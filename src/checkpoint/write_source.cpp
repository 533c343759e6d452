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
  std::vector<TypedAssembly> assemblies;
  for (const StoredTensor& stored : plan.tensors) {
    assemblies.push_back(
        {Assembly::of(stored.tensor.name, stored.tensor.shape), stored.tensor.dtype});
  }
  std::vector<StreamHash> hashes(plan.tensors.size());
  std::size_t current = 0;
  std::int64_t written = 0;  // bytes of it
  assemble(source, assemblies, options.threads,
           [&](std::size_t i, std::span<const std::byte> bytes) {
             if (i != current) written = 0;
             current = i;
             const StoredTensor& stored = plan.tensors[i];
             files.at(stored.file).write_at(stored.offset + written, bytes);
             hashes[i].add(bytes);
             written += std::ssize(bytes);
             if (options.wrote) options.wrote(std::ssize(bytes));
           });
  for (std::size_t i = 0; i < hashes.size(); ++i) plan.tensors[i].hash = hashes[i].hex();
  for (auto& [name, file] : files) file.sync();
  write_texts(unfinished, plan, state, config, disk);
  publish(dir, unfinished, folder, state.iteration, disk);
}

}  // namespace piton
