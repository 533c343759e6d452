// The file work of a save: one function per phase; all ranks wait for each other between phases. It
// reads nothing of the model, so it may run while training continues.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/collective.h"
#include "checkpoint/save_layout.h"
#include "checkpoint/store.h"
#include "checkpoint/written_parts.h"

namespace piton {

// Writes this rank's jobs into the files of an unfinished checkpoint.
class JobWriter {
 public:
  JobWriter(const std::filesystem::path& folder, const SaveLayout& layout, const Disk& disk);
  ~JobWriter();
  JobWriter(const JobWriter&) = delete;
  JobWriter& operator=(const JobWriter&) = delete;

  // `data`: the bytes of the job, on the host. Jobs come in their order, each once.
  void write(const WriteJob& job, const std::byte* data);
  // Flushes the files to the disk.
  void finish();
  // What was written, with the hashes of the bytes in memory.
  const std::vector<WrittenPart>& parts() const { return parts_; }

 private:
  class OpenFiles;
  const SaveLayout& layout_;
  std::unique_ptr<OpenFiles> files_;
  std::vector<WrittenPart> parts_;
};

// Passes the bytes of all jobs of this rank to the writer. Local work runs through the fault.
using GiveBytes = std::function<void(JobWriter& writer, FirstFault& fault)>;

// Collective over `ranks`: writes the files, publishes the checkpoint, and removes what is too old.
// Returns its folder. Sets the hashes of layout.plan. Throws the same Error(kData) on all ranks.
std::filesystem::path write_save(const SaveOrder& order, SaveLayout& layout, Communicator& ranks,
                                 const GiveBytes& give);

}  // namespace piton
