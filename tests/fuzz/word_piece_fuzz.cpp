// libraries: piton_text_files
// Any bytes as vocab.txt: an Error, or a tokenizer that encodes and decodes without a fault. The
// first byte selects the family that reads them.
#include <cstdint>

#include "base/error.h"
#include "fuzz/encode_texts.h"
#include "text/files/vocabulary_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  piton::WordPieceFamily family;
  family.lowercase = (data[0] & 1) != 0;
  family.megatron = (data[0] & 2) != 0;
  family.strip_accents = (data[0] & 4) != 0;
  family.chinese_characters = (data[0] & 8) != 0;
  family.extra_ids = data[0] >> 6;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const piton::PipelineTokenizer tokenizer(piton::read_word_piece(bytes, family, "fuzz"));
    piton::encode_texts(tokenizer, bytes);
  } catch (const piton::Error& error) {
    PITON_ASSERT(error.fault() == piton::Fault::kData);
  }
  return 0;
}
