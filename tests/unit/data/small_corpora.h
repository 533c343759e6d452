// Small corpora for tests.
#pragma once

#include <string>
#include <vector>

#include "data/corpus/indexed_dataset.h"

namespace piton {

// documents -> sequences -> ids
using Documents = std::vector<std::vector<std::vector<std::int32_t>>>;

inline void write_corpus(const std::string& prefix, IdType type, const Documents& documents) {
  IndexedWriter writer(prefix, type);
  for (const auto& document : documents) {
    for (const auto& ids : document) writer.add_sequence(ids);
    writer.end_document();
  }
  writer.finish();
}

}  // namespace piton
