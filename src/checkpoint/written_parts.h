// Which rank wrote which part of each tensor, with hashes of the bytes in memory. What the disk
// returns is compared with these.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/files/regular_file.h"
#include "checkpoint/manifest.h"
#include "comm/communicator.h"

namespace piton {

// A run of a tensor (checkpoint/regions.h), as written by one rank.
struct WrittenPart {
  std::size_t tensor = 0;  // index in the save's list
  TensorRun run;
  std::string hash;  // XXH3-128 of those bytes in memory
};

using PartsOfTensors = std::vector<std::vector<WrittenPart>>;

// Collective: the parts of all ranks, by tensor; `tensors` is their number.
PartsOfTensors gather_parts(const std::vector<WrittenPart>& mine, std::size_t tensors,
                            Communicator& ranks);

// The tensor's own hash if a single part covers it, so that nothing has to be read back. Nullopt
// for a tensor of several parts.
std::optional<std::string> hash_of_one_writer(const StoredTensor& tensor,
                                              const std::vector<WrittenPart>& parts);

// The tensor's hash from its bytes in the file. Throws Error(kData) with `file` if a part differs
// from what its rank had in memory.
std::string hash_read_back(const StoredTensor& tensor, const std::vector<WrittenPart>& parts,
                           const RegularFile& file);

}  // namespace piton
