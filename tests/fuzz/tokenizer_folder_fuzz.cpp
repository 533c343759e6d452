// libraries: piton_text_files
// Any bytes as tokenizer_config.json, special_tokens_map.json and added_tokens.json (separated by
// zero bytes) with a small vocabulary: an Error, or a tokenizer that encodes and decodes without a
// fault.
#include <cstdint>

#include "base/error.h"
#include "fuzz/encode_texts.h"
#include "fuzz/scratch_files.h"
#include "text/files/tokenizer_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  piton::scratch_file("vocab.txt",
                      "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhello\nw\n##or\n##ld\n1\n##2\n<s>\n</s>\n");
  for (const char* name :
       {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}) {
    const std::string_view part = piton::take_part(rest);
    if (part.empty()) {
      std::filesystem::remove(piton::scratch_folder() / name);
    } else {
      piton::scratch_file(name, part);
    }
  }
  try {
    const auto tokenizer = piton::open_tokenizer_folder(piton::scratch_folder(), false);
    piton::encode_texts(*tokenizer, {reinterpret_cast<const char*>(data), size});
  } catch (const piton::Error& error) {
    PITON_ASSERT(error.fault() == piton::Fault::kData);
  }
  return 0;
}
