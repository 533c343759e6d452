#include "generate/source_texts.h"

#include <algorithm>

namespace piton {

std::vector<GeneratedToken> generate_from_source(
    Inference& inference, const SourceText& source, const SamplingOptions& options,
    std::span<const std::int32_t> ends, const std::function<bool(const GeneratedToken&)>& each) {
  const ModelConfig& config = inference.config();
  options.check(config.vocabulary);
  check_prompt(config, source.ids);
  KvCache cache = inference.make_cache();
  inference.set_source(source.ids, cache);
  const std::int64_t text = cache.add_text();
  std::vector<std::int32_t> read{source.start};
  std::vector<GeneratedToken> tokens;
  const std::int64_t most = std::min(options.max_new_tokens, config.max_positions - 1);
  while (std::ssize(tokens) < most) {
    const TextTokens next{.text = text, .ids = std::span(read).last(1)};
    const std::vector<std::int32_t> rows{0};
    // Every rank has the same logits: there are no stages.
    const std::vector<float> logits =
        inference.whole_vocabulary(inference.logits(std::span(&next, 1), rows, cache));
    std::vector<float> changed = logits;
    penalize(changed, options, read, 1);
    const std::int32_t id =
        draw_id(changed, options, {.index = std::ssize(tokens), .draw = source.draw});
    tokens.push_back(token_of(logits, options, id));
    read.push_back(id);
    if (!each(tokens.back()) || std::ranges::find(ends, id) != ends.end()) break;
  }
  return tokens;
}

}  // namespace piton
