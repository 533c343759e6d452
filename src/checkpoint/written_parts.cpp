#include "checkpoint/written_parts.h"

#include <sstream>

#include "base/error.h"
#include "checkpoint/file_tensor.h"

namespace piton {
namespace {

// "tensor begin end hash ndim start... extent...", one line per part.
std::string encode(const std::vector<WrittenPart>& parts) {
  std::string text;
  for (const WrittenPart& part : parts) {
    text += fmt::format("{} {} {} {} {} {} {}\n", part.tensor, part.run.begin, part.run.end,
                        part.hash, part.run.start.ndim(), fmt::join(part.run.start.sizes(), " "),
                        fmt::join(part.run.extent.sizes(), " "));
  }
  return text;
}

void decode(const std::string& text, PartsOfTensors& result) {
  std::istringstream in(text);
  WrittenPart part;
  int dims = 0;
  while (in >> part.tensor >> part.run.begin >> part.run.end >> part.hash >> dims) {
    part.run.start = {};
    part.run.extent = {};
    std::int64_t size = 0;
    for (int dim = 0; dim < dims && in >> size; ++dim) part.run.start.append(size);
    for (int dim = 0; dim < dims && in >> size; ++dim) part.run.extent.append(size);
    result.at(part.tensor).push_back(part);
  }
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
  if (parts.size() != 1 || parts[0].run.extent != tensor.tensor.shape || parts[0].run.begin != 0 ||
      parts[0].run.end != tensor.tensor.shape.elements()) {
    return std::nullopt;
  }
  return parts[0].hash;
}

std::string hash_read_back(const StoredTensor& tensor, const std::vector<WrittenPart>& parts,
                           const RegularFile& file) {
  const FileTensor stored{.file = file,
                          .offset = tensor.offset,
                          .dtype = tensor.tensor.dtype,
                          .shape = tensor.tensor.shape};
  for (const WrittenPart& part : parts) {
    if (hash_of_run(stored, part.run) == part.hash) continue;
    throw Error(Fault::kData,
                "checkpoint: {}: {}: the disk returned other bytes than were written (elements "
                "{} to {} of a region); check the disk, or save elsewhere",
                file.path().string(), tensor.tensor.name, part.run.begin, part.run.end);
  }
  return hash_of_bytes(file, tensor.offset, tensor.bytes);
}

}  // namespace piton
