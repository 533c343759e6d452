// The second pass over encoded documents, for what needs all of them:
// the order of several data sets (--mix-strategy),
// and packing (--pack).
//
// The first pass writes to PREFIX.unpacked and leaves its journal as PREFIX.unpacked.done, so that
// a run which is killed in the second pass does not repeat it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/preprocess/preprocess_options.h"

namespace piton {

bool needs_second_pass(const PreprocessOptions& options);

// Where the first pass writes.
std::string first_pass_prefix(const PreprocessOptions& options);

struct SecondPass {
  std::vector<std::string> from;  // corpora of the first pass
  std::vector<std::string> to;
  std::vector<std::int64_t> set_documents;  // documents of each data set in `from`
  std::int32_t pad = 0;                     // id that fills packed sequences
};

struct SecondPassCounts {
  std::int64_t sequences = 0;
  std::int64_t taught_tokens = 0;  // of all corpora of labels
};

// Writes the corpora in their order, packed if asked for: each sequence has --seq-length ids, the
// rest of it padding with the label kIgnoredLabel. attention_mask is 1; under --neat-pack it is the
// number of the sample in its sequence, from 1, and 0 on padding. Throws Error(kUsage) for
// --interleave-probs that do not fit, Error(kData) for an empty data set.
SecondPassCounts run_second_pass(const PreprocessOptions& options, const SecondPass& pass);

}  // namespace piton
