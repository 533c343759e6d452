#include "data/masked/masked_vocabulary.h"

#include <optional>
#include <string_view>

#include "base/error.h"

namespace piton {
namespace {

// Megatron-core's rule (MegatronDataset): an id with another role is not padding.
std::int32_t padding_of(const SpecialIds& special) {
  const std::int32_t pad = *special.pad;
  for (const std::optional<std::int32_t>& other :
       {special.bos, special.eos, special.eod, special.unk, special.cls, special.sep,
        special.mask}) {
    if (other == pad) return MaskedVocabulary::kNone;
  }
  return pad;
}

std::int32_t needed(std::optional<std::int32_t> id, std::string_view task, std::string_view token,
                    const Tokenizer& tokenizer) {
  if (id) return *id;
  throw Error(Fault::kUsage,
              "--model-family {}: the tokenizer ({} of {} ids) has no {}; wanted one with it, such "
              "as --tokenizer-type BertWordPieceLowerCase",
              task, tokenizer.name(), tokenizer.vocabulary_size(), token);
}

}  // namespace

MaskedVocabulary MaskedVocabulary::of(const Tokenizer& tokenizer, MaskedTask task) {
  const SpecialIds& special = tokenizer.special();
  const bool is_bert = task == MaskedTask::kBert;
  const std::string_view name = is_bert ? "bert" : "t5";
  needed(special.pad, name, "[PAD]", tokenizer);
  MaskedVocabulary vocabulary;
  vocabulary.pad = padding_of(special);
  vocabulary.cls = special.cls.value_or(kNone);
  vocabulary.sep = special.sep.value_or(kNone);
  vocabulary.mask = special.mask.value_or(kNone);
  if (is_bert) {
    needed(special.cls, name, "[CLS]", tokenizer);
    needed(special.sep, name, "[SEP]", tokenizer);
    needed(special.mask, name, "[MASK]", tokenizer);
  } else {
    // T5's own tokenizers have none: its decoders start with padding.
    vocabulary.bos = special.bos.value_or(*special.pad);
    vocabulary.eos = needed(special.eos, name, "token that ends a text ([EOS])", tokenizer);
    while (const auto id =
               tokenizer.id_of(fmt::format("<extra_id_{}>", vocabulary.sentinels.size()))) {
      vocabulary.sentinels.push_back(*id);
    }
    if (vocabulary.sentinels.empty()) {
      throw Error(Fault::kUsage,
                  "--model-family t5: the tokenizer has no sentinels (<extra_id_0>, ...); give "
                  "--vocab-extra-ids 100");
    }
  }
  const std::int64_t size = tokenizer.vocabulary_size();
  vocabulary.continues.resize(static_cast<std::size_t>(size));
  for (std::int32_t id = 0; id < size; ++id) {
    const std::string piece = tokenizer.piece(id);
    if (piece.empty()) continue;
    vocabulary.ids.push_back(id);
    vocabulary.continues[static_cast<std::size_t>(id)] = piece.starts_with("##");
  }
  return vocabulary;
}

}  // namespace piton
