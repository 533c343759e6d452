#include "generate/source_texts.h"

#include <algorithm>

#include "generate/decoded_text.h"

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
  double most_surprise = options.first_most_surprise();
  const std::int64_t most = std::min(options.max_new_tokens, config.max_positions - 1);
  while (std::ssize(tokens) < most) {
    const TextTokens next{.text = text, .ids = std::span(read).last(1)};
    const std::vector<std::int32_t> rows{0};
    // Only the last stage has logits and draws; all ranks continue with its token.
    const Tensor logits = inference.logits(std::span(&next, 1), rows, cache);
    const TokenDraw draw{.sampling = &options,
                         .place = {.index = std::ssize(tokens), .draw = source.draw},
                         .text = read,
                         .prompt = 1,
                         .most_surprise = most_surprise};
    std::vector<GeneratedToken> drawn;
    for (const DrawnToken& one : inference.draw(logits, std::span(&draw, 1))) {
      drawn.push_back({one, {}});
      if (options.log_probabilities.value_or(0) > 0)
        drawn.back() = token_of(inference.host_logits(logits), options, one.id);
      drawn.back().share = one.share;
    }
    tokens.push_back(read_tokens(inference.from_last_stage(bytes_of(drawn))).front());
    const std::int32_t id = tokens.back().id;
    read.push_back(id);
    most_surprise = options.next_most_surprise(most_surprise, tokens.back().share);
    if (!each(tokens.back()) || std::ranges::find(ends, id) != ends.end()) break;
  }
  return tokens;
}

}  // namespace piton
