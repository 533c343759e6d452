#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "gguf/vocabulary/vocabulary.h"

namespace piton {
namespace {

// As published models have them, and llama.cpp knows them.
constexpr std::array<std::string_view, 5> kTurnEnds = {"<|eot_id|>", "<|eot|>", "<|im_end|>",
                                                       "<|end|>", "<end_of_turn>"};
constexpr std::array<std::string_view, 2> kMessageEnds = {"<|eom_id|>", "<|eom|>"};

// Takes the first of `ids` whose token `fits` out of them.
template <typename Fits>
void take_first(std::vector<std::int32_t>& ids, std::optional<std::int32_t>& place, Fits&& fits) {
  if (place) return;
  const auto found = std::ranges::find_if(ids, fits);
  if (found == ids.end()) return;
  place = *found;
  ids.erase(found);
}

}  // namespace

std::vector<std::int32_t> add_ends(const std::vector<std::int32_t>& ends,
                                   GgufVocabulary& vocabulary) {
  std::vector<std::int32_t> left;
  std::vector<std::int32_t> beyond;  // the table
  for (const std::int32_t id : ends) {
    const bool is_token = id >= 0 && id < std::ssize(vocabulary.tokens);
    std::vector<std::int32_t>& list = is_token ? left : beyond;
    if (id != vocabulary.eos && std::ranges::find(list, id) == list.end()) list.push_back(id);
  }
  const auto any = [](std::int32_t) { return true; };
  const auto named = [&](std::span<const std::string_view> names) {
    return [&vocabulary, names](std::int32_t id) {
      return std::ranges::find(names, vocabulary.tokens[static_cast<std::size_t>(id)]) !=
             names.end();
    };
  };
  take_first(left, vocabulary.eos, any);
  take_first(left, vocabulary.eot, named(kTurnEnds));
  take_first(left, vocabulary.eom, named(kMessageEnds));
  take_first(left, vocabulary.eot, any);
  take_first(left, vocabulary.eom, any);
  left.insert(left.end(), beyond.begin(), beyond.end());
  return left;
}

}  // namespace piton
