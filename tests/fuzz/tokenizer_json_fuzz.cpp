// libraries: piton_text_files
// Any bytes as tokenizer.json: an Error, or a tokenizer that encodes and decodes without a fault.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "fuzz/encode_texts.h"
#include "text/files/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const piton::PipelineTokenizer tokenizer(piton::read_tokenizer_json(text, "fuzz"));
    piton::encode_texts(tokenizer, text, false);
  } catch (const piton::Error&) {
  }
  return 0;
}
