// libraries: piton_huggingface
// Any bytes as model.safetensors.index.json: an Error, or names of files inside the folder.
#include <cstdint>

#include "base/error.h"
#include "huggingface/files/tensor_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    for (const auto& [tensor, file] : piton::parse_hf_index(text, "index.json")) {
      PITON_ASSERT(!file.empty() && file != "." && file != "..", "{}", tensor);
      PITON_ASSERT(file.find('/') == file.npos && file.find('\0') == file.npos, "{}", tensor);
    }
  } catch (const piton::Error& error) {
    PITON_ASSERT(error.fault() == piton::Fault::kData);
  }
  return 0;
}
