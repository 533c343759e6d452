// libraries: piton_text_files
// Any bytes as a file of tiktoken's ranks: an Error, or a tokenizer that encodes and decodes
// without a fault. If the first byte is odd, the 256 single bytes are inserted before the rest,
// because without them every file is refused.
#include <cstdint>

#include "base/error.h"
#include "fuzz/encode_texts.h"
#include "text/files/vocabulary_files.h"

namespace {

const std::string& single_bytes() {
  static const std::string lines = [] {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (unsigned byte = 0; byte < 256; ++byte) {
      text.push_back(kDigits[byte >> 2]);
      text.push_back(kDigits[(byte & 3) << 4]);
      text += "== " + std::to_string(byte) + "\n";
    }
    return text;
  }();
  return lines;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string file =
      (data[0] & 1) != 0 ? single_bytes() + std::string(bytes) : std::string(bytes);
  const piton::Scanner scanner{piton::Scanner::Kind::kCl100k, (data[0] & 2) != 0 ? 1 : 3};
  try {
    const piton::PipelineTokenizer tokenizer(piton::read_tiktoken(file, scanner, "fuzz"));
    piton::encode_texts(tokenizer, bytes);
  } catch (const piton::Error& error) {
    PITON_ASSERT(error.fault() == piton::Fault::kData);
  }
  return 0;
}
