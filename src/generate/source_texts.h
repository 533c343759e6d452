// Texts that a model of an encoder and a decoder writes about another text, one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "generate/inference.h"
#include "generate/sampling.h"

namespace piton {

struct SourceText {
  std::span<const std::int32_t> ids;  // that the encoder reads
  std::int32_t start = 0;             // the first id that the decoder reads
  std::uint64_t draw = 0;             // texts of one source differ in this
};

// Up to max_new_tokens, an id of `ends`, or the model's longest sequence. `each` sees a token as
// soon as it is drawn; false from it ends the text (on every rank alike). Repetition counts what
// the decoder has read. Collective over the model's ranks. Throws Error(kUsage) as check_prompt()
// does for `source.ids`.
std::vector<GeneratedToken> generate_from_source(
    Inference& inference, const SourceText& source, const SamplingOptions& options,
    std::span<const std::int32_t> ends, const std::function<bool(const GeneratedToken&)>& each);

}  // namespace piton
