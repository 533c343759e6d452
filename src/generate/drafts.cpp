#include "generate/drafts.h"

#include <algorithm>

namespace piton {
namespace {

class PromptLookup final : public Drafter {
 public:
  explicit PromptLookup(std::int64_t most) : most_(most) {}
  std::int64_t most() const override { return most_; }

  std::vector<std::vector<std::int32_t>> drafts(std::span<const DraftRequest> texts) override {
    std::vector<std::vector<std::int32_t>> all;
    for (const DraftRequest& text : texts) all.push_back(draft(text));
    return all;
  }

 private:
  static constexpr std::int64_t kShortest = 2;  // one token alone is found by chance
  static constexpr std::int64_t kLongest = 4;

  // How many of the last tokens are also before `end`, which is not the end of the text.
  static std::int64_t common_ending(std::span<const std::int32_t> ids, std::int64_t end) {
    const std::int64_t length = std::ssize(ids);
    std::int64_t common = 0;
    while (common < kLongest && common < end &&
           ids[static_cast<std::size_t>(end - 1 - common)] ==
               ids[static_cast<std::size_t>(length - 1 - common)])
      ++common;
    return common;
  }

  static std::vector<std::int32_t> draft(const DraftRequest& text) {
    std::int64_t best = kShortest - 1;
    std::int64_t place = 0;  // after the ending
    for (std::int64_t end = std::ssize(text.ids) - 1; end >= kShortest && best < kLongest; --end) {
      const std::int64_t common = common_ending(text.ids, end);
      if (common <= best) continue;
      best = common;
      place = end;
    }
    if (place == 0) return {};
    const auto next = text.ids.subspan(static_cast<std::size_t>(place));
    const auto count = std::min<std::size_t>(next.size(), static_cast<std::size_t>(text.most));
    return {next.begin(), next.begin() + static_cast<std::ptrdiff_t>(count)};
  }

  std::int64_t most_;
};

class ModelDrafter final : public Drafter {
 public:
  ModelDrafter(DecodingEngine& engine, std::int64_t longest, std::int64_t most)
      : engine_(engine), longest_(longest), most_(most) {}
  std::int64_t most() const override { return most_; }

  // Each text is a new request; the engine has its beginning in the cache.
  std::vector<std::vector<std::int32_t>> drafts(std::span<const DraftRequest> texts) override {
    std::vector<std::vector<std::int32_t>> all(texts.size());
    std::vector<std::size_t> of;  // request i is of text of[i]
    std::int64_t first = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (std::ssize(texts[i].ids) >= longest_ || texts[i].most == 0) continue;
      const std::int64_t number =
          engine_.submit({.prompt = {texts[i].ids.begin(), texts[i].ids.end()},
                          .sampling = {.max_new_tokens = texts[i].most, .greedy = true}});
      if (of.empty()) first = number;
      of.push_back(i);
    }
    while (!engine_.idle()) {
      for (const DecodingEvent& event : engine_.step())
        all[of[static_cast<std::size_t>(event.request - first)]].push_back(event.token.id);
    }
    return all;
  }

 private:
  DecodingEngine& engine_;
  std::int64_t longest_;
  std::int64_t most_;
};

}  // namespace

std::unique_ptr<Drafter> make_prompt_lookup(std::int64_t most) {
  return std::make_unique<PromptLookup>(most);
}

std::unique_ptr<Drafter> make_model_drafter(DecodingEngine& engine, std::int64_t longest,
                                            std::int64_t most) {
  return std::make_unique<ModelDrafter>(engine, longest, most);
}

}  // namespace piton
