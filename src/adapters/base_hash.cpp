#include "adapters/base_hash.h"

#include <algorithm>
#include <map>
#include <span>
#include <sstream>
#include <vector>

#include "base/hash.h"
#include "checkpoint/collective.h"
#include "checkpoint/manifest.h"

namespace piton {
namespace {

constexpr std::int64_t kBlockBytes = std::int64_t{4} << 20;

std::string hash_of_values(TensorSource& source, const CanonicalTensor& tensor) {
  const std::int64_t width = size_bytes(tensor.dtype);
  std::vector<std::byte> block(
      static_cast<std::size_t>(std::min(kBlockBytes / width, tensor.shape.elements()) * width));
  StreamHash hash;
  TensorRun run = whole_run(tensor.shape);
  const std::int64_t elements = run.end;
  for (run.begin = 0; run.begin < elements; run.begin = run.end) {
    run.end = std::min(elements, run.begin + kBlockBytes / width);
    source.read(tensor.name, run, tensor.dtype, block.data());
    hash.add(std::span(block).first(static_cast<std::size_t>(run.size() * width)));
  }
  return hash.hex();
}

}  // namespace

std::string weights_hash(TensorSource& source, Communicator& ranks) {
  const std::vector<CanonicalTensor> tensors = source.tensors(TensorKind::kWeight);
  std::vector<std::int64_t> sizes;
  for (const CanonicalTensor& tensor : tensors)
    sizes.push_back(tensor.shape.elements() * size_bytes(tensor.dtype));
  const std::vector<int> readers = spread(sizes, ranks.size());
  std::string mine;  // "NUMBER HASH ..." of this rank's tensors
  phase(ranks, std::nullopt, [&] {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (readers[i] != ranks.rank()) continue;
      mine += fmt::format("{} {} ", i, hash_of_values(source, tensors[i]));
    }
  });
  Manifest whole;
  for (const std::string& part : ranks.gather_bytes(mine)) {
    std::istringstream words(part);
    std::size_t number = 0;
    std::string hash;
    while (words >> number >> hash)
      whole.tensors.push_back({.tensor = tensors[number], .file = "", .hash = hash});
  }
  return hash_of(whole, TensorKind::kWeight);
}

}  // namespace piton
