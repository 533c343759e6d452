// libraries: piton_data_corpus
// Token indexes of any bytes: refused with an Error, or read within their bounds. The first two
// bytes are the number of bytes used as ids.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "data/corpus/indexed_dataset.h"
#include "fuzz/scratch_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string prefix = (piton::scratch_folder() / "corpus").string();
  const std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::size_t ids = std::min<std::size_t>(rest.size(), data[0] + 256U * data[1]);
  piton::scratch_file("corpus.bin", rest.substr(0, ids));
  piton::scratch_file("corpus.idx", rest.substr(ids));
  for (const auto check :
       {piton::IndexedDataset::Check::kWhole, piton::IndexedDataset::Check::kHeader}) {
    try {
      const auto corpus = piton::IndexedDataset::open(prefix, check);
      if (check == piton::IndexedDataset::Check::kHeader) continue;
      std::vector<std::int32_t> out;
      for (std::int64_t i = 0; i < corpus.sequences(); ++i) {
        out.resize(static_cast<std::size_t>(corpus.length(i)));
        corpus.read(i, 0, out);
      }
      for (std::int64_t i = 0; i < corpus.documents(); ++i) {
        if (corpus.document_start(i) > corpus.document_start(i + 1)) std::abort();
      }
    } catch (const piton::Error&) {
    }
  }
  return 0;
}
