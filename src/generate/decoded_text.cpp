#include "generate/decoded_text.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

// Row `row` is one after which a token of the prompt is scored.
bool scores(const DecodedText& text, std::int64_t row) { return row + 1 < text.length(); }

// The ids that row `row` scores: the next one, and what may be in the place of the last one.
std::vector<std::int32_t> scored_ids(const DecodedText& text, std::int64_t row) {
  std::vector<std::int32_t> ids{text.ids[static_cast<std::size_t>(row + 1)]};
  if (row + 2 == std::ssize(text.request.prompt)) {
    const std::vector<std::int32_t>& others = text.request.alternatives;
    ids.insert(ids.end(), others.begin(), others.end());
  }
  return ids;
}

bool ends_with(const DecodedText& text, std::int32_t id) {
  return std::ranges::find(text.request.ends, id) != text.request.ends.end();
}

// After a new token, of which the constraint learns.
FinishReason finish_of(DecodedText& text) {
  if (ends_with(text, text.ids.back())) return FinishReason::kStop;
  if (text.request.constraint) {
    text.request.constraint->advance(text.ids.back());
    if (text.request.constraint->done()) return FinishReason::kStop;
  }
  return text.length() == text.most_ids ? FinishReason::kLength : FinishReason::kNone;
}

// Whether the token after `drafts` drafts was guessed too, so that the next row is of this text.
bool goes_on(const DecodedText& text, const TextReading& reading, std::size_t drafts,
             std::int32_t id) {
  return static_cast<std::int64_t>(drafts) < reading.drafts && text.drafts[drafts] == id &&
         !ends_with(text, id);
}

GeneratedToken take_first(std::span<GeneratedToken>& tokens) {
  PITON_ASSERT(!tokens.empty(), "a row without a token");
  GeneratedToken token = std::move(tokens.front());
  tokens = tokens.subspan(1);
  return token;
}

}  // namespace

void check_request(const ModelConfig& config, const DecodingRequest& request) {
  const std::int64_t length = std::ssize(request.prompt);
  PITON_ASSERT(
      request.scored_from >= 0 && (request.scored_from == 0 || request.scored_from < length),
      "tokens from {} on are scored, of {}", request.scored_from, length);
  SamplingOptions sampling = request.sampling;
  if (!request.only_scores()) {
    check_prompt(config, request.prompt);
    sampling.check(config.vocabulary);
    return;
  }
  sampling.max_new_tokens = 1;
  sampling.check(config.vocabulary);
  if (length - 1 > config.max_positions)
    throw Error(Fault::kUsage, "score: {} tokens, and the model takes {}; cut the text", length - 1,
                config.max_positions);
  for (const auto* ids : {&request.prompt, &request.alternatives}) {
    for (const std::int32_t id : *ids) {
      if (id < 0 || id >= config.vocabulary)
        throw Error(Fault::kUsage, "score: id {} is outside of the vocabulary; wanted 0 to {}", id,
                    config.vocabulary - 1);
    }
  }
}

std::int64_t scored_rows(const DecodedText& text, const TextReading& reading) {
  const std::int64_t first = std::max(reading.begin, text.first_row());
  return std::max<std::int64_t>(0, std::min(reading.end, text.length() - 1) - first);
}

std::int64_t drawn_rows(const DecodedText& text, const TextReading& reading) {
  return reading.rows(text) - scored_rows(text, reading);
}

std::vector<TokenDraw> draws_of(const DecodedText& text, const TextReading& reading) {
  const SamplingOptions& sampling = text.request.sampling;
  std::vector<TokenDraw> draws;
  for (std::int64_t drafts = 0; drafts < drawn_rows(text, reading); ++drafts) {
    TokenDraw& draw = draws.emplace_back();
    draw.sampling = &sampling;
    draw.place = {.index = text.generated() + drafts, .draw = text.request.draw};
    draw.constraint = text.request.constraint.get();
    draw.most_surprise = text.most_surprise;
    if (!sampling.reads_text()) continue;
    draw.text = text.ids;
    draw.text.insert(draw.text.end(), text.drafts.begin(), text.drafts.begin() + drafts);
    draw.prompt = text.request.prompt.size();
  }
  return draws;
}

bool takes_likeliest(const DecodedText& text, const TextReading& reading) {
  const SamplingOptions& sampling = text.request.sampling;
  return sampling.greedy && !sampling.changes_logits() && !text.request.constraint &&
         !needs_logits(text, reading) && drawn_rows(text, reading) > 0;
}

bool needs_logits(const DecodedText& text, const TextReading& reading) {
  return scored_rows(text, reading) > 0 ||
         (text.request.sampling.log_probabilities.value_or(0) > 0 && drawn_rows(text, reading) > 0);
}

std::vector<GeneratedToken> tokens_of_rows(const DecodedText& text, const TextReading& reading,
                                           std::span<const float> logits,
                                           std::span<const DrawnToken> drawn, ThreadPool* threads) {
  const SamplingOptions& sampling = text.request.sampling;
  const std::int64_t first = std::max(reading.begin, text.first_row());
  const std::int64_t rows = scored_rows(text, reading);
  const std::size_t width =
      logits.size() / static_cast<std::size_t>(std::max<std::int64_t>(1, reading.rows(text)));
  const auto logits_of = [&](std::int64_t row) {
    return logits.subspan(static_cast<std::size_t>(row) * width, width);
  };
  // Sums over a vocabulary take about as long as a small part of the pass.
  std::vector<std::vector<GeneratedToken>> scored(static_cast<std::size_t>(rows));
  const auto score = [&](std::int64_t i) {
    scored[static_cast<std::size_t>(i)] =
        tokens_of(logits_of(i), sampling, scored_ids(text, first + i));
  };
  if (threads != nullptr) {
    threads->run(rows, score);
  } else {
    for (std::int64_t i = 0; i < rows; ++i) score(i);
  }
  std::vector<GeneratedToken> tokens;
  for (std::vector<GeneratedToken>& of_row : scored)
    std::ranges::move(of_row, std::back_inserter(tokens));
  for (std::size_t drafts = 0; drafts < drawn.size(); ++drafts) {
    const DrawnToken& one = drawn[drafts];
    if (sampling.log_probabilities.value_or(0) > 0) {
      const auto row = rows + static_cast<std::int64_t>(drafts);
      tokens.push_back(token_of(logits_of(row), sampling, one.id));
    } else {
      tokens.push_back({one, {}});
    }
    tokens.back().share = one.share;
    if (!goes_on(text, reading, drafts, one.id)) break;
  }
  return tokens;
}

std::vector<DecodingEvent> take_tokens(DecodedText& text, const TextReading& reading,
                                       std::span<GeneratedToken>& tokens) {
  for (std::int64_t row = std::max(reading.begin, text.first_row());
       row < reading.end && scores(text, row); ++row) {
    for (std::size_t i = scored_ids(text, row).size(); i > 0; --i)
      text.scored.push_back(take_first(tokens));
    ++text.scored_rows;
  }
  if (reading.end < text.to_read()) return {};
  if (text.request.only_scores()) {
    return {{.request = text.number,
             .token = {{-1, 0}, {}},
             .finish = FinishReason::kLength,
             .scored = std::exchange(text.scored, {}),
             .reused_tokens = text.reused.value_or(0)}};
  }
  std::vector<DecodingEvent> events;
  for (std::size_t drafts = 0;; ++drafts) {
    const GeneratedToken token = take_first(tokens);
    text.ids.push_back(token.id);
    text.most_surprise = text.request.sampling.next_most_surprise(text.most_surprise, token.share);
    const FinishReason finish = finish_of(text);
    events.push_back({.request = text.number,
                      .token = token,
                      .finish = finish,
                      .scored = std::exchange(text.scored, {}),
                      .reused_tokens = text.reused.value_or(0)});
    if (!goes_on(text, reading, drafts, token.id)) return events;
  }
}

std::string bytes_of(std::span<const GeneratedToken> tokens) {
  std::vector<LikelyToken> all;
  for (const GeneratedToken& token : tokens) {
    all.push_back(token);
    all.push_back({static_cast<std::int32_t>(token.likeliest.size()), token.share});
    all.insert(all.end(), token.likeliest.begin(), token.likeliest.end());
  }
  return {reinterpret_cast<const char*>(all.data()), all.size() * sizeof(LikelyToken)};
}

std::vector<GeneratedToken> read_tokens(const std::string& bytes) {
  std::vector<LikelyToken> all(bytes.size() / sizeof(LikelyToken));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  std::vector<GeneratedToken> tokens;
  for (auto next = all.begin(); next != all.end();) {
    GeneratedToken& token = tokens.emplace_back();
    static_cast<LikelyToken&>(token) = *next++;
    token.share = next->log_probability;
    const std::int32_t others = (next++)->id;
    token.likeliest.assign(next, next + others);
    next += others;
  }
  return tokens;
}

}  // namespace piton
