#include "generate/agreed_tokens.h"

#include <algorithm>
#include <iterator>

namespace piton {
namespace {

// For each row of the logits the token that is drawn from it, if one is.
std::vector<DrawnToken> drawn_tokens(Inference& inference, std::span<const DecodedText> texts,
                                     std::span<const TextReading> readings, const Tensor& logits) {
  std::vector<DrawnToken> tokens(static_cast<std::size_t>(logits.dim(0)));
  const auto takes = [&](const TextReading& one) { return takes_likeliest(texts[one.text], one); };
  if (std::ranges::any_of(readings, takes))
    std::ranges::transform(inference.likeliest(logits), tokens.begin(),
                           [](const LikelyToken& one) { return DrawnToken{one}; });
  std::int64_t begin = 0;        // of the rows of a reading
  std::vector<TokenDraw> draws;  // of the rows before `end`
  std::int64_t end = 0;
  const auto draw = [&] {
    if (draws.empty()) return;
    const std::int64_t first = end - std::ssize(draws);
    std::ranges::copy(inference.draw(logits.slice(0, first, std::ssize(draws)), draws),
                      tokens.begin() + first);
    draws.clear();
  };
  for (const TextReading& one : readings) {
    const DecodedText& text = texts[one.text];
    const std::int64_t rows = one.rows(text);
    if (!takes(one) && drawn_rows(text, one) > 0) {
      if (begin + scored_rows(text, one) != end) draw();
      std::ranges::move(draws_of(text, one), std::back_inserter(draws));
      end = begin + rows;
    }
    begin += rows;
  }
  draw();
  return tokens;
}

}  // namespace

std::vector<GeneratedToken> agreed_tokens(Inference& inference, std::span<const DecodedText> texts,
                                          std::span<const TextReading> readings,
                                          const Tensor& logits) {
  std::vector<GeneratedToken> all;
  if (logits.defined()) {
    const std::vector<DrawnToken> drawn = drawn_tokens(inference, texts, readings, logits);
    std::int64_t begin = 0;  // of the rows of a reading
    for (const TextReading& one : readings) {
      const DecodedText& text = texts[one.text];
      const std::int64_t rows = one.rows(text);
      std::span<const float> numbers;
      if (needs_logits(text, one)) numbers = inference.host_logits(logits.slice(0, begin, rows));
      const auto of_text =
          std::span(drawn).subspan(static_cast<std::size_t>(begin + scored_rows(text, one)),
                                   static_cast<std::size_t>(drawn_rows(text, one)));
      std::ranges::move(tokens_of_rows(text, one, numbers, of_text, inference.threads()),
                        std::back_inserter(all));
      begin += rows;
    }
  }
  return read_tokens(inference.from_last_stage(bytes_of(all)));
}

}  // namespace piton
