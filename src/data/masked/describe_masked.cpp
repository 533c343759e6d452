#include "data/masked/describe_masked.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace piton {
namespace {

using Ids = std::vector<std::int32_t>;

template <typename Test>
std::vector<int> mask_where(const Ids& values, Test&& test) {
  std::vector<int> mask;
  for (const std::int32_t value : values) mask.push_back(test(value) ? 1 : 0);
  return mask;
}

bool is_learned(std::int32_t label) { return label != kNoLabel; }
bool is_token(std::int32_t segment) { return segment != kPaddingSegment; }

Ids megatron_labels(const Ids& labels) {
  Ids result = labels;
  std::replace(result.begin(), result.end(), kNoLabel, -1);
  return result;
}

// Of the first `count`.
std::string pieces(const Ids& ids, std::int64_t count, const Tokenizer& tokenizer) {
  std::string text;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    text += tokenizer.piece(ids[i]) + ' ';
  return text;
}

}  // namespace

std::string masked_to_json(const Sample& sample, std::int64_t index) {
  nlohmann::ordered_json json = {{"index", index}};
  const Ids labels = megatron_labels(sample.labels);
  const std::vector<int> learned = mask_where(sample.labels, is_learned);
  if (sample.decoder.empty()) {
    json["ids"] = sample.tokens;
    json["types"] = sample.types;
    json["labels"] = labels;
    json["is_random"] = sample.swapped.value_or(false) ? 1 : 0;
    json["padding_mask"] = mask_where(sample.segments, is_token);
    json["loss_mask"] = learned;
  } else {
    json["encoder_ids"] = sample.tokens;
    json["decoder_ids"] = sample.decoder;
    json["labels"] = labels;
    json["loss_mask"] = learned;
    json["encoder_mask"] = mask_where(sample.segments, is_token);
    json["decoder_mask"] = mask_where(sample.decoder_segments, is_token);
  }
  return json.dump() + "\n";
}

std::string masked_to_text(const Sample& sample, std::int64_t index, const Tokenizer& tokenizer) {
  const auto learned = std::count_if(sample.labels.begin(), sample.labels.end(), is_learned);
  std::string text = fmt::format("--- sample {}: {} tokens of {}, {} in the loss", index,
                                 sample.length, sample.tokens.size(), learned);
  if (!sample.decoder.empty()) {
    // The decoder has a label for each of its tokens.
    return text + fmt::format("\nencoder: {}\ndecoder: {}\n",
                              pieces(sample.tokens, sample.length, tokenizer),
                              pieces(sample.decoder, learned, tokenizer));
  }
  if (sample.swapped) text += *sample.swapped ? ", parts swapped" : ", parts in order";
  text += '\n';
  for (std::size_t i = 0; i < static_cast<std::size_t>(sample.length); ++i) {
    text += tokenizer.piece(sample.tokens[i]);
    if (is_learned(sample.labels[i]))
      text += fmt::format("{{-{}-}}", tokenizer.piece(sample.labels[i]));
    text += ' ';
  }
  return text + '\n';
}

}  // namespace piton
