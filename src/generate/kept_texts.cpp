#include "generate/kept_texts.h"

#include <algorithm>

namespace piton {

const KeptTexts::Text* KeptTexts::longest(std::span<const std::int32_t> ids,
                                          std::optional<std::int64_t> adapter) const {
  const Text* best = nullptr;
  for (const Text& text : texts_) {
    if (text.adapter != adapter || text.ids.size() > ids.size() ||
        (best != nullptr && text.ids.size() <= best->ids.size()))
      continue;
    if (std::ranges::equal(text.ids, ids.first(text.ids.size()))) best = &text;
  }
  return best;
}

std::optional<std::int64_t> KeptTexts::find(std::span<const std::int32_t> ids,
                                            std::optional<std::int64_t> adapter) {
  const Text* best = longest(ids, adapter);
  if (best == nullptr) return {};
  texts_[static_cast<std::size_t>(best - texts_.data())].used = ++time_;
  return best->number;
}

std::int64_t KeptTexts::common(std::span<const std::int32_t> ids,
                               std::optional<std::int64_t> adapter) const {
  const Text* best = longest(ids, adapter);
  return best == nullptr ? 0 : std::ssize(best->ids);
}

bool KeptTexts::use(std::span<const std::int32_t> ids, std::optional<std::int64_t> adapter) {
  return common(ids, adapter) == std::ssize(ids) && find(ids, adapter).has_value();
}

void KeptTexts::keep_copy(std::int64_t text, std::span<const std::int32_t> ids,
                          std::optional<std::int64_t> adapter) {
  if (!use(ids, adapter)) add(cache_->fork(text), ids, adapter);
}

void KeptTexts::keep_ended(std::int64_t text, std::span<const std::int32_t> ids,
                           std::optional<std::int64_t> adapter) {
  if (use(ids, adapter)) {
    cache_->pages().remove_text(text);
  } else {
    add(text, ids, adapter);
  }
}

void KeptTexts::add(std::int64_t number, std::span<const std::int32_t> ids,
                    std::optional<std::int64_t> adapter) {
  texts_.push_back(
      {.number = number, .ids = {ids.begin(), ids.end()}, .adapter = adapter, .used = ++time_});
  if (std::ssize(texts_) > most_) forget_oldest();
}

void KeptTexts::evict(std::int64_t wanted) {
  while (!texts_.empty() && cache_->pages().free() < wanted) forget_oldest();
}

void KeptTexts::forget_oldest() {
  const auto oldest = std::ranges::min_element(texts_, {}, &Text::used);
  cache_->pages().remove_text(oldest->number);
  texts_.erase(oldest);
}

}  // namespace piton
