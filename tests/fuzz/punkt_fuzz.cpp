// libraries: piton_data_sentences piton_data_records
// Any bytes as Punkt's four parameter files and a text (separated by zero bytes): an Error, or
// sentences inside the text, in order. Parameters that were read can be written and read again
// unchanged.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "data/records/record_parser.h"
#include "data/sentences/punkt.h"
#include "data/sentences/punkt_trainer.h"
#include "fuzz/scratch_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bool keep_newlines = (data[0] & 1) != 0;
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  for (const char* name :
       {"abbrev_types.txt", "collocations.tab", "sent_starters.txt", "ortho_context.tab"}) {
    piton::scratch_file(name, piton::take_part(rest));
  }
  // Readers of records refuse what is not UTF-8 before it is cut.
  const std::string_view text = rest.substr(0, piton::first_bad_utf8(rest));
  try {
    const auto parameters = piton::PunktParameters::read(piton::scratch_folder());
    const auto again = piton::scratch_folder() / "again";
    std::filesystem::create_directories(again);
    parameters.write(again);
    if (piton::PunktParameters::read(again).content_hash() != parameters.content_hash())
      std::abort();
    std::vector<std::string_view> sentences;
    piton::PunktSplitter(parameters, keep_newlines).split(text, sentences);
    const char* at = text.data();
    for (const std::string_view sentence : sentences) {
      if (sentence.data() < at || sentence.data() + sentence.size() > text.data() + text.size())
        std::abort();
      at = sentence.data() + sentence.size();
    }
  } catch (const piton::Error& error) {
    PITON_ASSERT(error.fault() == piton::Fault::kData);
  }
  piton::PunktTrainer trainer;
  trainer.train(text);
  trainer.finish();
  return 0;
}
