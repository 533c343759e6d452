#include "generate/shared_beginnings.h"

#include <algorithm>

#include "model/rotary.h"

namespace piton {
namespace {

// A text waits for a beginning that another reads if this spares it a sixteenth of its reading.
constexpr std::int64_t kWorthWaiting = 16;

}  // namespace

bool can_begin_others(const ModelConfig& config, std::int64_t length) {
  return !config.prefix &&
         rotary_length(config.rotary_scaling, length) == rotary_length(config.rotary_scaling, 1);
}

std::int64_t shared_beginning(const DecodedText& text, const DecodedText& other, std::int64_t known,
                              std::int64_t most) {
  if (other.request.adapter != text.request.adapter) return 0;
  const std::int64_t common = std::min(
      {std::ranges::mismatch(other.ids, text.ids).in1 - other.ids.begin(), most, text.first_row()});
  return common > known && (common - known) * kWorthWaiting >= text.to_read() - known ? common : 0;
}

void plan_to_keep(DecodedText& text, TextReading& reading, const std::deque<DecodedText>& waiting,
                  const KeptTexts& kept, std::int64_t prompt_tokens) {
  std::int64_t pause = reading.end;
  for (std::size_t i = 0; i < std::min(waiting.size(), kMostPassedOver); ++i) {
    const DecodedText& other = waiting[i];
    const auto ids = std::span(other.ids).first(static_cast<std::size_t>(other.first_row()));
    const std::int64_t shared =
        shared_beginning(other, text, kept.common(ids, other.request.adapter), text.to_read());
    if (shared <= reading.begin || shared > pause) continue;
    pause = shared;
    text.keep_at = shared;
  }
  const std::int64_t left = text.to_read() - reading.end;
  if (pause == reading.end && left > 0 && left <= prompt_tokens) text.keep_at = pause;
  reading.end = pause;
}

}  // namespace piton
