#include "data/masked/masked_vocabulary.h"

#include <gtest/gtest.h>

#include "base/files/files.h"
#include "masked_corpora.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

std::string refusal(const std::string& vocabulary, MaskedTask task, std::int64_t extra_ids = 0) {
  const TempFolder folder;
  TokenizerOptions options;
  options.type = "BertWordPieceLowerCase";
  options.vocab_file = (folder.path() / "vocab.txt").string();
  options.vocab_extra_ids = extra_ids;
  write_text_file(options.vocab_file, vocabulary);
  const auto tokenizer = open_tokenizer(options);
  return message_of(Fault::kUsage, [&] { MaskedVocabulary::of(*tokenizer, task); });
}

TEST(MaskedVocabulary, KnowsRolesSentinelsAndWords) {
  const auto tokenizer = masked_tokenizer(3);
  const MaskedVocabulary vocabulary = MaskedVocabulary::of(*tokenizer, MaskedTask::kT5);
  EXPECT_EQ(vocabulary.cls, 2);
  EXPECT_EQ(vocabulary.sep, 3);
  EXPECT_EQ(vocabulary.mask, 4);
  EXPECT_EQ(vocabulary.bos, 300);
  EXPECT_EQ(vocabulary.eos, 301);
  EXPECT_EQ(vocabulary.sentinels, (std::vector<std::int32_t>{302, 303, 304}));
  EXPECT_EQ(vocabulary.ids.size(), 305U);
  for (std::int32_t id = 0; id < 305; ++id) {
    EXPECT_EQ(vocabulary.continues.at(static_cast<std::size_t>(id)),
              tokenizer->piece(id).starts_with("##"))
        << id;
  }
}

TEST(MaskedVocabulary, NamesWhatIsMissing) {
  const std::string whole = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n";
  EXPECT_EQ(refusal("[UNK]\n[PAD]\n[CLS]\n[SEP]\n[MASK]\n", MaskedTask::kBert),
            "--model-family bert: the id of padding is 1, wanted 0, since masks take tokens of id "
            "0 for padding; use a vocabulary that starts with [PAD], or --bert-no-binary-head");
  EXPECT_EQ(refusal("[UNK]\n[PAD]\n[CLS]\n[SEP]\n[MASK]\n", MaskedTask::kT5, 5),
            "--model-family t5: the id of padding is 1, wanted 0, since masks take tokens of id "
            "0 for padding; use a vocabulary that starts with [PAD]");
  EXPECT_EQ(refusal("[PAD]\n[UNK]\n[CLS]\n[SEP]\n", MaskedTask::kBert),
            "--model-family bert: the tokenizer (WordPiece of 6 ids) has no [MASK]; wanted one "
            "with it, such as --tokenizer-type BertWordPieceLowerCase");
  EXPECT_EQ(refusal(whole, MaskedTask::kT5),
            "--model-family t5: the tokenizer has no sentinels (<extra_id_0>, ...); give "
            "--vocab-extra-ids 100");
}

}  // namespace
}  // namespace piton
