// Vectors of texts equal those of Transformers (tests/golden/encoders, tools/oracle/encoders.py).
#include "api/encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/files/files.h"
#include "checkpoint/safetensors.h"
#include "support/errors.h"
#include "support/golden_huggingface.h"
#include "support/host_machine.h"
#include "support/temp_folder.h"
#include "support/tensors.h"

namespace piton {
namespace {

using test::encoder_folder;
using Texts = std::vector<std::vector<std::int32_t>>;

class Vectors : public testing::Test {
 protected:
  // A tokenizer, which the golden folders lack; the texts are given as ids.
  std::unique_ptr<Encoder> load(const std::string& name) {
    write_text_file(dir_ / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\none\ntwo\n");
    return Encoder::load(
        one_.machine, encoder_folder(name),
        {.type = "BertWordPieceLowerCase", .vocab_file = (dir_ / "vocab.txt").string()});
  }

  // The rows of the batch without padding.
  static Texts texts_of(const SafetensorsFile& expected) {
    const Tensor tokens = expected.tensor("tokens");
    const Tensor segments = expected.tensor("segments");
    Texts texts(static_cast<std::size_t>(tokens.dim(0)));
    for (std::int64_t i = 0; i < tokens.elements(); ++i) {
      if (segments.data<std::int32_t>()[i] < 0) continue;
      texts[static_cast<std::size_t>(i / tokens.dim(1))].push_back(tokens.data<std::int32_t>()[i]);
    }
    return texts;
  }

  test::HostMachine one_;
  TempFolder dir_;
};

double largest_difference(const Tensor& a, const Tensor& b) {
  double worst = a.shape() == b.shape() ? 0 : INFINITY;
  for (std::int64_t i = 0; worst < INFINITY && i < a.elements(); ++i)
    worst = std::max(worst, std::abs(test::value_at(a, i) - test::value_at(b, i)));
  return worst;
}

TEST_F(Vectors, AreThoseOfTransformers) {
  for (const char* name : {"bert", "bert-masked", "megatron-bert", "roberta", "bert-model"}) {
    SCOPED_TRACE(name);
    const auto encoder = load(name);
    const SafetensorsFile expected(encoder_folder(name) / "expected.safetensors");
    const Texts texts = texts_of(expected);
    EXPECT_LT(largest_difference(encoder->embed(texts, Pooling::kMean), expected.tensor("mean")),
              1e-5);
    EXPECT_LT(largest_difference(encoder->embed(texts, Pooling::kFirst), expected.tensor("first")),
              1e-5);
  }
}

TEST_F(Vectors, OfThePoolerAreThoseOfTransformers) {
  const auto encoder = load("bert-model");
  const SafetensorsFile expected(encoder_folder("bert-model") / "expected.safetensors");
  EXPECT_LT(largest_difference(encoder->embed(texts_of(expected), Pooling::kPooler),
                               expected.tensor("pooled")),
            1e-5);
  EXPECT_EQ(message_of(Fault::kUsage,
                       [&] {
                         load("roberta")->embed(Texts{{2, 3}}, Pooling::kPooler);
                       }),
            "embed: --pooling pooler: the model has no pooler; wanted mean or first");
}

TEST_F(Vectors, OfManyTextsAreInTheirOrder) {
  const auto encoder = load("bert");
  Texts texts;
  for (std::int32_t i = 0; i < 700; ++i)
    texts.emplace_back(static_cast<std::size_t>(1 + i * 7 % 38), 5 + i % 60);
  const Tensor all = encoder->embed(texts, Pooling::kMean);
  for (const std::size_t i : {0, 1, 350, 699}) {
    const Tensor one = encoder->embed(std::span(texts).subspan(i, 1), Pooling::kMean);
    EXPECT_LT(largest_difference(all.slice(0, static_cast<std::int64_t>(i), 1), one), 1e-5) << i;
  }
}

TEST_F(Vectors, OfALongTextAreOfItsBeginAndItsLastId) {
  const auto encoder = load("bert");  // takes 40 ids
  std::vector<std::int32_t> text(60, 7);
  text.back() = 3;
  std::vector<std::int32_t> cut(40, 7);
  cut.back() = 3;
  EXPECT_EQ(test::values(encoder->embed(Texts{text}, Pooling::kMean)),
            test::values(encoder->embed(Texts{cut}, Pooling::kMean)));
}

TEST_F(Vectors, HaveClsAndSepAroundTheText) {
  EXPECT_EQ(load("bert")->ids_of("two one"), (std::vector<std::int32_t>{2, 6, 5, 3}));
}

TEST_F(Vectors, OfWhatIsNoTextAreRefused) {
  const auto encoder = load("bert");
  const auto refusal = [&](const std::vector<std::int32_t>& ids) {
    return message_of(Fault::kUsage, [&] { encoder->embed(Texts{ids}, Pooling::kMean); });
  };
  EXPECT_EQ(refusal({}), "embed: a text without ids; wanted one or more");
  EXPECT_EQ(refusal({67}), "embed: id 67 is outside of the vocabulary; wanted 0 to 66");
}

}  // namespace
}  // namespace piton
