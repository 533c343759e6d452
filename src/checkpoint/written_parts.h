// What each rank wrote of each tensor, by hashes that were taken of its memory: the measure of what
// the disk gives back.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "comm/communicator.h"

namespace piton {

// Elements [begin, end) of a region of a tensor (checkpoint/regions.h), as one rank wrote them.
struct WrittenPart {
  std::size_t tensor = 0;  // in the save's list
  Shape start;
  Shape extent;
  std::int64_t begin = 0;
  std::int64_t end = 0;
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
                           std::span<const std::byte> bytes, const std::filesystem::path& file);

}  // namespace piton
