// libraries: piton_gguf_vocabulary
// Any bytes as a GGUF file: an Error that names it, or a model whose tensors are in the file, and a
// tokenizer or an Error. What was read of its head is written and read again to the same.
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "fuzz/scratch_files.h"
#include "gguf/gguf_source.h"
#include "gguf/vocabulary/vocabulary.h"
#include "text/files/tokenizer_folder.h"

namespace {

piton::GgufHeader parse(const std::string& bytes) {
  return piton::parse_gguf(
      [&](std::int64_t offset, std::span<std::byte> out) {
        PITON_ASSERT(offset >= 0 && offset + std::ssize(out) <= std::ssize(bytes));
        std::memcpy(out.data(), bytes.data() + offset, out.size());
      },
      std::ssize(bytes), "fuzz.gguf");
}

template <typename Action>
void or_refused(Action&& action) {
  try {
    action();
  } catch (const piton::Error& error) {
    PITON_ASSERT(error.fault() == piton::Fault::kData);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  piton::GgufHeader header;
  try {
    header = parse(bytes);
  } catch (const piton::Error& error) {
    PITON_ASSERT(error.fault() == piton::Fault::kData);
    PITON_ASSERT(std::string(error.what()).starts_with("fuzz.gguf: "));
    return 0;
  }
  for (const piton::GgufTensor& tensor : header.tensors) {
    PITON_ASSERT(tensor.offset >= 0 &&
                 header.data_begin + tensor.offset + tensor.bytes() <= std::ssize(bytes));
  }
  piton::GgufHeader again = header;
  std::string written = piton::make_gguf_header(again);
  written.resize(written.size() + size, '\0');
  const piton::GgufHeader read = parse(written);
  PITON_ASSERT(read.entries.size() == header.entries.size());
  for (std::size_t i = 0; i < header.entries.size(); ++i)
    PITON_ASSERT(read.entries[i].value == header.entries[i].value);
  PITON_ASSERT(read.tensors.size() == header.tensors.size());

  or_refused([&] {
    const auto files =
        piton::files_of_vocabulary(piton::read_gguf_vocabulary(header, "fuzz.gguf"), "fuzz.gguf");
    if (!files.empty()) piton::open_tokenizer_texts(files, "fuzz.gguf");
  });
  or_refused([&] {
    const std::filesystem::path path = piton::scratch_file("fuzz.gguf", bytes);
    piton::GgufSource source(path);
    std::vector<float> values;
    for (const piton::CanonicalTensor& tensor : source.tensors(piton::TensorKind::kWeight)) {
      values.resize(static_cast<std::size_t>(tensor.shape.elements()));
      source.read(tensor.name, piton::whole_run(tensor.shape), piton::DType::kF32,
                  reinterpret_cast<std::byte*>(values.data()));
    }
  });
  return 0;
}
