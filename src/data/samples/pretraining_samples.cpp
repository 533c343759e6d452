#include "data/samples/pretraining_samples.h"

#include <utility>

#include "base/error.h"

namespace piton {

DocumentRules DocumentRules::from(const DataOptions& options, std::optional<std::int32_t> eod,
                                  std::optional<std::int32_t> pad) {
  DocumentRules rules;
  rules.reset_position_ids = options.reset_position_ids;
  rules.reset_attention_mask = options.reset_attention_mask;
  rules.eod_mask_loss = options.eod_mask_loss;
  rules.eod = eod;
  if (pad != eod) rules.pad = pad;
  return rules;
}

PretrainingSamples::PretrainingSamples(std::shared_ptr<const TokenSource> rows, DocumentRules rules)
    : rows_(std::move(rows)), rules_(rules) {
  if ((rules_.reset_position_ids || rules_.reset_attention_mask || rules_.eod_mask_loss) &&
      !rules_.eod) {
    throw Error(
        Fault::kUsage,
        "data: --reset-position-ids, --reset-attention-mask and --eod-mask-loss need an "
        "end-of-document id, and the tokenizer has none; leave them out or use another tokenizer");
  }
}

void PretrainingSamples::sample(std::int64_t index, Sample& sample) const {
  const auto length = static_cast<std::size_t>(sequence());
  sample.tokens.resize(length + 1);
  rows_->read(index, sample.tokens);
  sample.labels.assign(sample.tokens.begin() + 1, sample.tokens.end());
  sample.tokens.pop_back();
  sample.positions.resize(length);
  sample.segments.resize(rules_.reset_attention_mask ? length : 0);
  sample.length = sequence();
  std::int32_t position = 0, segment = 0;
  for (std::size_t i = 0; i < length; ++i) {
    const std::int32_t token = sample.tokens[i];
    const bool ends = rules_.eod && token == *rules_.eod;
    if ((ends && rules_.eod_mask_loss) || (rules_.pad && sample.labels[i] == *rules_.pad)) {
      sample.labels[i] = kNoLabel;
    }
    if (rules_.pad && token == *rules_.pad) sample.tokens[i] = 0;
    sample.positions[i] = position++;
    if (rules_.reset_attention_mask) sample.segments[i] = segment;
    if (ends) {
      ++segment;
      if (rules_.reset_position_ids) position = 0;
    }
  }
}

}  // namespace piton
