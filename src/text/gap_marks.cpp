#include "text/gap_marks.h"

namespace piton {

std::optional<GapMarks> gap_marks(const Tokenizer& tokenizer) {
  struct Names {
    const char* before;
    const char* after;
    const char* gap;
  };
  for (const Names& names : {Names{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
                             Names{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
                             Names{"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
                             Names{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"}}) {
    const auto before = tokenizer.id_of(names.before);
    const auto after = tokenizer.id_of(names.after);
    const auto gap = tokenizer.id_of(names.gap);
    if (before && after && gap) return GapMarks{.before = *before, .after = *after, .gap = *gap};
  }
  return std::nullopt;
}

}  // namespace piton
