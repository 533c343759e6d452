// What each rank wrote of each tensor, by hashes that were taken of its memory: the measure of what
// the disk gives back.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/regular_file.h"
#include "checkpoint/manifest.h"
#include "comm/communicator.h"

namespace piton {

// A run of a tensor (checkpoint/regions.h), as one rank wrote it.
struct WrittenPart {
  std::size_t tensor = 0;  // in the save's list
  TensorRun run;
  std::string hash;  // XXH3-128 of those bytes in memory
};

using PartsOfTensors = std::vector<std::vector<WrittenPart>>;

// Collective: the parts of all ranks, by tensor; `tensors` is their number.
PartsOfTensors gather_parts(const std::vector<WrittenPart>& mine, std::size_t tensors,
                            Communicator& ranks);

// The tensor's own hash, where one part is all of it: nothing has to be read back. Nullopt for a
// tensor of several parts.
std::optional<std::string> hash_of_one_writer(const StoredTensor& tensor,
                                              const std::vector<WrittenPart>& parts);

// The tensor's hash from its bytes in the file. Throws Error(kData) naming `file` if a part is not
// what its rank had in memory.
std::string hash_read_back(const StoredTensor& tensor, const std::vector<WrittenPart>& parts,
                           const RegularFile& file);

}  // namespace piton
