#include "checkpoint/written_parts.h"

#include <sstream>

#include "base/error.h"
#include "base/hash.h"

namespace piton {
namespace {

// "tensor begin end hash ndim start... extent...", a line a part.
std::string encode(const std::vector<WrittenPart>& parts) {
  std::string text;
  for (const WrittenPart& part : parts) {
    text += fmt::format("{} {} {} {} {} {} {}\n", part.tensor, part.begin, part.end, part.hash,
                        part.start.ndim(), fmt::join(part.start.sizes(), " "),
                        fmt::join(part.extent.sizes(), " "));
  }
  return text;
}

void decode(const std::string& text, PartsOfTensors& result) {
  std::istringstream in(text);
  WrittenPart part;
  int dims = 0;
  while (in >> part.tensor >> part.begin >> part.end >> part.hash >> dims) {
    part.start = {};
    part.extent = {};
    std::int64_t size = 0;
    for (int dim = 0; dim < dims && in >> size; ++dim) part.start.append(size);
    for (int dim = 0; dim < dims && in >> size; ++dim) part.extent.append(size);
    result.at(part.tensor).push_back(part);
  }
}

std::string hash_of_part(const StoredTensor& tensor, const WrittenPart& part,
                         std::span<const std::byte> bytes) {
  const std::int64_t width = size_bytes(tensor.tensor.dtype);
  StreamHash hash;
  for_each_stretch(tensor.tensor.shape, part.start, part.extent, part.begin, part.end,
                   [&](std::int64_t at, std::int64_t, std::int64_t count) {
                     hash.add(bytes.subspan(static_cast<std::size_t>(at * width),
                                            static_cast<std::size_t>(count * width)));
                   });
  return hash.hex();
}

}  // namespace

PartsOfTensors gather_parts(const std::vector<WrittenPart>& mine, std::size_t tensors,
                            Communicator& ranks) {
  PartsOfTensors result(tensors);
  for (const std::string& theirs : ranks.gather_bytes(encode(mine))) decode(theirs, result);
  return result;
}

std::optional<std::string> hash_of_one_writer(const StoredTensor& tensor,
                                              const std::vector<WrittenPart>& parts) {
  if (parts.size() != 1 || parts[0].extent != tensor.tensor.shape || parts[0].begin != 0 ||
      parts[0].end != tensor.tensor.shape.elements()) {
    return std::nullopt;
  }
  return parts[0].hash;
}

std::string hash_read_back(const StoredTensor& tensor, const std::vector<WrittenPart>& parts,
                           std::span<const std::byte> bytes, const std::filesystem::path& file) {
  for (const WrittenPart& part : parts) {
    if (hash_of_part(tensor, part, bytes) == part.hash) continue;
    throw Error(Fault::kData,
                "checkpoint: {}: {}: the disk gives back other bytes than were written (elements "
                "{} to {} of a region); check the disk, or save elsewhere",
                file.string(), tensor.tensor.name, part.begin, part.end);
  }
  return hash_bytes(bytes);
}

}  // namespace piton
