// Samples of masked words for open_data_sets() (data/samples/data_sets.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/log.h"
#include "data/masked/masking_options.h"
#include "data/samples/data_sets.h"
#include "text/tokenizer.h"

namespace piton {

// What --model-family says of samples: "bert" or "t5"; no value for families of decoders.
std::optional<MaskedTask> masked_task(std::string_view family);

struct MaskedSettings {
  MaskedTask task = MaskedTask::kBert;
  std::int64_t sequence = 0;  // tokens of a row; T5: of the encoder
  std::uint32_t seed = 1234;  // 1 or more
  MaskingOptions masking;
  bool pairs = true;                                  // BERT: two parts, whose order is predicted
  std::optional<std::int64_t> decoder_sequence = {};  // T5: tokens of a row of the decoder
};

// Tokens of a row of the decoder of T5. Throws Error(kUsage) if they are not given.
std::int64_t decoder_row(const DecoderRowOptions& decoder);

// Throws Error(kUsage) if they are given, to a model without a decoder's rows.
void refuse_decoder_row(const DecoderRowOptions& decoder);

// Throws Error(kUsage) if an option is given that only samples of masked words have.
void refuse_masking(const MaskingOptions& masking);

// SampleSettings::of_documents for this task. Reports through `log`, which must outlive the result,
// how many samples the documents of each set give, and which are left out. Throws Error(kUsage) for
// options out of range, without a tokenizer (null) and for data options that are not for masked
// words; see also MaskedVocabulary::of.
DocumentSamples masked_samples(const MaskedSettings& settings, const DataOptions& data,
                               const Tokenizer* tokenizer, Log& log);

}  // namespace piton
