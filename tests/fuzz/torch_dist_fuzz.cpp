// libraries: piton_megatron
// Any bytes as .metadata of torch.distributed.checkpoint and the file of its chunks (four bytes
// with the length of the first, then both): boxes that are inside the file and make up their
// tensors, or an Error.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "fuzz/scratch_files.h"
#include "megatron/distributed/torch_dist.h"
#include "megatron/format/flat_boxes.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::uint32_t length = 0;
  std::memcpy(&length, bytes.data(), std::min<std::size_t>(size, sizeof(length)));
  bytes.remove_prefix(std::min<std::size_t>(size, sizeof(length)));
  const std::string_view metadata = bytes.substr(0, std::min<std::size_t>(length, bytes.size()));
  piton::scratch_file(".metadata", metadata);
  piton::scratch_file("__0_0.distcp", bytes.substr(metadata.size()));
  try {
    piton::TorchDist files(piton::scratch_folder());
    std::vector<piton::BoxedTensors> all{files.tensors(0, 0, 0), files.masters(0, 0, 0)};
    try {
      files.optimizer_counts();
      for (const piton::FlatVector& vector : files.buckets({}, "param"))
        all.push_back({{"", piton::tensor_in(vector, 0, vector.elements(), 1)}});
      const piton::BoxedMoments moments = files.moments(0, 0, 0);
      all.insert(all.end(), {moments.first, moments.second});
    } catch (const piton::Error& error) {
      PITON_ASSERT(error.fault() == piton::Fault::kData, "{}", error.what());
    }
    for (const auto& tensors : all) {
      for (const auto& [key, tensor] : tensors) {
        std::int64_t elements = 0;
        for (const piton::TensorBox& box : tensor.boxes) {
          PITON_ASSERT(box.row >= 0 && box.row + box.rows <= tensor.rows);
          PITON_ASSERT(box.column >= 0 && box.column + box.columns <= tensor.columns);
          const std::int64_t end =
              box.offset + ((box.rows - 1) * box.stride + box.columns) * size_bytes(tensor.dtype);
          PITON_ASSERT(box.offset >= 0 && end <= box.file->size_bytes());
          elements += box.rows * box.columns;
        }
        PITON_ASSERT(elements == tensor.rows * tensor.columns);
      }
    }
  } catch (const piton::Error& error) {
    PITON_ASSERT(error.fault() == piton::Fault::kData, "{}", error.what());
  }
  return 0;
}
