#include "data/masked/masked_vocabulary.h"

#include <gtest/gtest.h>

#include "base/files/files.h"
#include "masked_corpora.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

std::unique_ptr<Tokenizer> tokenizer_of(const std::string& vocabulary, std::int64_t extra_ids) {
  const TempFolder folder;
  TokenizerOptions options;
  options.type = "BertWordPieceLowerCase";
  options.vocab_file = (folder.path() / "vocab.txt").string();
  options.vocab_extra_ids = extra_ids;
  write_text_file(options.vocab_file, vocabulary);
  return open_tokenizer(options);
}

std::string refusal(const std::string& vocabulary, MaskedTask task) {
  const auto tokenizer = tokenizer_of(vocabulary, 0);
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

TEST(MaskedVocabulary, APaddingWithAnotherRoleHidesNothing) {
  const auto own = tokenizer_of("[UNK]\n[CLS]\n[SEP]\n[PAD]\n[MASK]\na\n", 0);
  const MaskedVocabulary vocabulary = MaskedVocabulary::of(*own, MaskedTask::kBert);
  EXPECT_EQ(vocabulary.pad, 3);
  EXPECT_EQ(vocabulary.shown(3), 0);
  EXPECT_EQ(vocabulary.shown(5), 5);

  // Padding of a folder that names none is the end of texts.
  const TempFolder folder;
  write_text_file(folder.path() / "vocab.txt", "[UNK]\n[CLS]\n[SEP]\n[MASK]\n</s>\na\n");
  write_text_file(folder.path() / "tokenizer_config.json",
                  R"({"tokenizer_class": "BertTokenizer", "unk_token": "[UNK]",
                      "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]",
                      "eos_token": "</s>", "pad_token": "</s>"})");
  TokenizerOptions options;
  options.name_or_path = folder.path().string();
  const auto shared = open_tokenizer(options);
  ASSERT_EQ(shared->special().pad, shared->special().eos);
  EXPECT_EQ(MaskedVocabulary::of(*shared, MaskedTask::kBert).pad, MaskedVocabulary::kNone);
}

TEST(MaskedVocabulary, NamesWhatIsMissing) {
  const std::string whole = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n";
  EXPECT_EQ(refusal("[UNK]\n[CLS]\n[SEP]\n[MASK]\n", MaskedTask::kT5),
            "--model-family t5: the tokenizer (WordPiece of 6 ids) has no [PAD]; wanted one with "
            "it, such as --tokenizer-type BertWordPieceLowerCase");
  EXPECT_EQ(refusal("[PAD]\n[UNK]\n[CLS]\n[SEP]\n", MaskedTask::kBert),
            "--model-family bert: the tokenizer (WordPiece of 6 ids) has no [MASK]; wanted one "
            "with it, such as --tokenizer-type BertWordPieceLowerCase");
  EXPECT_EQ(refusal(whole, MaskedTask::kT5),
            "--model-family t5: the tokenizer has no sentinels (<extra_id_0>, ...); give "
            "--vocab-extra-ids 100");
}

}  // namespace
}  // namespace piton
