// libraries: piton_text_files
// Any bytes as tokenizer.model: an Error, or a tokenizer that encodes and decodes without a fault.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "fuzz/encode_texts.h"
#include "text/sentencepiece/sentencepiece_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const piton::SentencePieceTokenizer tokenizer(piton::read_sentencepiece_model(bytes, "fuzz"),
                                                  {}, "", "fuzz");
    piton::encode_texts(tokenizer, bytes);
  } catch (const piton::Error&) {
  }
  return 0;
}
