// libraries: piton_text_files
// Any bytes as vocab.json and, after the first zero byte, merges.txt: an Error, or a tokenizer that
// encodes and decodes without a fault. The first byte selects the family that reads them.
#include <cstdint>

#include "base/error.h"
#include "fuzz/encode_texts.h"
#include "fuzz/scratch_files.h"
#include "text/files/vocabulary_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  piton::ByteBpeFamily family;
  if ((data[0] & 1) != 0) family.scanner = {piton::Scanner::Kind::kCl100k, 1 + (data[0] >> 7)};
  family.nfc = (data[0] & 2) != 0;
  family.add_prefix_space = (data[0] & 4) != 0;
  family.ignore_merges = (data[0] & 8) != 0;
  std::string_view merges(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view vocabulary = piton::take_part(merges);
  try {
    const piton::PipelineTokenizer tokenizer(
        piton::read_byte_bpe(vocabulary, merges, family, "vocab", "merges"));
    piton::encode_texts(tokenizer, merges);
  } catch (const piton::Error& error) {
    PITON_ASSERT(error.fault() == piton::Fault::kData);
  }
  return 0;
}
