#include "data/masked/masked_sets.h"

#include <memory>
#include <utility>

#include "base/error.h"
#include "base/options/option_range.h"
#include "data/masked/bert_dataset.h"
#include "data/masked/t5_dataset.h"

namespace piton {
namespace {

std::string_view family_of(MaskedTask task) { return task == MaskedTask::kBert ? "bert" : "t5"; }

void check_data(const DataOptions& data, std::string_view family) {
  const auto refuse = [&](bool given, std::string_view flag) {
    if (!given) return;
    throw Error(Fault::kUsage, "--{}: is not for samples of --model-family {}; leave it out", flag,
                family);
  };
  refuse(data.mock_data, "mock-data");
  refuse(data.is_instruction_dataset, "is-instruction-dataset");
  refuse(data.reset_position_ids, "reset-position-ids");
  refuse(data.reset_attention_mask, "reset-attention-mask");
  refuse(data.eod_mask_loss, "eod-mask-loss");
  refuse(data.train_data_exact_num_epochs.has_value(), "train-data-exact-num-epochs");
}

void check(const MaskedSettings& settings) {
  const MaskingOptions& masking = settings.masking;
  const bool is_bert = settings.task == MaskedTask::kBert;
  if (!(masking.mask_probability > 0 && masking.mask_probability < 1)) {
    throw Error(Fault::kUsage, "--mask-prob: got {}, wanted 0 < p < 1", masking.mask_probability);
  }
  // 1 / p is rounded to a number of 32 bits.
  const double shorter = masking.short_sequence_probability;
  if (!(shorter == 0 || (shorter >= 1e-9 && shorter <= 1))) {
    throw Error(Fault::kUsage, "--short-seq-prob: got {}, wanted 0, or 1e-9 <= p <= 1", shorter);
  }
  check_range("--seq-length", settings.sequence,
              2 + (is_bert ? BertDataset::kAdded : T5Dataset::kAdded), kLargestSize);
  if (settings.seed == 0 || settings.seed > 0x7FFFFFFFU) {
    throw Error(Fault::kUsage,
                "--seed: got {}, wanted 1 to 2147483647 for samples of --model-family {}",
                settings.seed, family_of(settings.task));
  }
  if (is_bert && settings.decoder_sequence) {
    throw Error(Fault::kUsage, "--decoder-seq-length: is for --model-family t5; leave it out");
  }
  if (is_bert) return;
  if (!settings.pairs) {
    throw Error(Fault::kUsage, "--bert-no-binary-head: is for --model-family bert; leave it out");
  }
  static_cast<void>(decoder_row({settings.decoder_sequence}));
}

}  // namespace

std::int64_t decoder_row(const DecoderRowOptions& decoder) {
  if (!decoder.decoder_sequence) {
    throw Error(Fault::kUsage,
                "--decoder-seq-length: is not given; wanted the tokens that the decoder of T5 "
                "reads, such as 128 for --encoder-seq-length 512");
  }
  check_range("--decoder-seq-length", *decoder.decoder_sequence, 1, kLargestSize);
  return *decoder.decoder_sequence;
}

std::optional<MaskedTask> masked_task(std::string_view family) {
  if (family == "bert") return MaskedTask::kBert;
  if (family == "t5") return MaskedTask::kT5;
  return std::nullopt;
}

void refuse_decoder_row(const DecoderRowOptions& decoder) {
  if (!decoder.decoder_sequence) return;
  throw Error(Fault::kUsage, "--decoder-seq-length: is for --model-family t5; leave it out");
}

void refuse_masking(const MaskingOptions& masking) {
  const MaskingOptions none;
  if (masking.mask_probability == none.mask_probability &&
      masking.short_sequence_probability == none.short_sequence_probability) {
    return;
  }
  throw Error(
      Fault::kUsage,
      "--mask-prob, --short-seq-prob: are for samples of --model-family bert or t5; add that or "
      "leave them out");
}

DocumentSamples masked_samples(const MaskedSettings& settings, const DataOptions& data,
                               const Tokenizer* tokenizer, Log& log) {
  const std::string_view family = family_of(settings.task);
  check_data(data, family);
  check(settings);
  if (tokenizer == nullptr) {
    throw Error(Fault::kUsage,
                "--model-family {}: masking needs the words of the vocabulary; give "
                "--tokenizer-type and --vocab-file, or --tokenizer-name-or-path",
                family);
  }
  const auto vocabulary =
      std::make_shared<const MaskedVocabulary>(MaskedVocabulary::of(*tokenizer, settings.task));
  return [settings, vocabulary, &log](const DocumentShare& share) {
    const bool is_bert = settings.task == MaskedTask::kBert;
    const bool pairs = is_bert && settings.pairs;
    const std::int64_t added = is_bert ? BertDataset::kAdded : T5Dataset::kAdded;
    MaskedData made{
        .corpus = share.corpus,
        .vocabulary = vocabulary,
        .spans = make_sentence_spans(
            *share.corpus, {.first = share.first,
                            .end = share.end,
                            .samples = share.samples,
                            .longest = settings.sequence - added,
                            .short_probability = settings.masking.short_sequence_probability,
                            .seed = settings.seed,
                            .least_sentences = pairs ? 2 : 1}),
        .sequence = settings.sequence,
        .probability = settings.masking.mask_probability,
        .seed = settings.seed};
    const SentenceSpans& spans = made.spans;
    log.info(fmt::format(
        "{}: {} set: {} samples of {} documents, read {} times; left out: {} with fewer than {} "
        "sentences, {} with a sentence of more than 512 tokens",
        share.corpus->prefix(), share.set, spans.spans.size(), spans.documents, spans.epochs,
        spans.too_few, pairs ? 2 : 1, spans.too_long));
    std::shared_ptr<const SampleSource> source;
    if (is_bert) {
      source = std::make_shared<BertDataset>(std::move(made), pairs);
    } else {
      source = std::make_shared<T5Dataset>(std::move(made), *settings.decoder_sequence);
    }
    return source;
  };
}

}  // namespace piton
