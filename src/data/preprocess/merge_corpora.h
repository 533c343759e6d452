// Joins corpora.
#pragma once

#include <string>
#include <vector>

#include "data/preprocess/preprocess.h"

namespace piton {

// --merge: concatenates the corpora; documents keep their order.
PreprocessReport merge_corpora(const std::vector<std::string>& prefixes,
                               const std::string& output_prefix, bool overwrite = false);

// --merge-group-keys: the corpora of a folder whose names contain a key, in the order of their
// names.
struct CorpusGroup {
  std::string key;
  std::vector<std::string> prefixes;
};
// Throws Error(kUsage) for a folder that does not exist, a key that no corpus has, and groups that
// are not equally large; Error(kData) for a .bin or .idx without the other.
std::vector<CorpusGroup> corpus_groups(const std::string& folder,
                                       const std::vector<std::string>& keys);

}  // namespace piton
