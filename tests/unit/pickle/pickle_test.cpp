// Pickles of weights: output of torch.save is read, and anything that could execute code is
// refused.
#include "pickle/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/errors.h"

namespace piton {
namespace {

using testing::HasSubstr;
using Kind = PickleValue::Kind;

PickleDocument read(const std::string& bytes) { return read_pickle(bytes, "x.pt"); }
std::string refusal(const std::string& bytes) {
  return message_of(Fault::kData, [&] { read(bytes); });
}
std::string with_nul(const char* text, std::size_t size) { return {text, size}; }

TEST(Pickle, HoldsPlainData) {
  const PickleDocument document = read("(dS'a'\nI1\nsV b\n(lF0.5\naNaI01\nas.");
  const PickleValue& root = document.root();
  ASSERT_EQ(root.kind, Kind::kDict);
  EXPECT_EQ(root.find("'a'")->integer, 1);
  const PickleValue& list = *root.find(" b");
  ASSERT_EQ(list.items.size(), 3U);
  EXPECT_EQ(list.items[0]->number, 0.5);
  EXPECT_EQ(list.items[1]->kind, Kind::kNone);
  EXPECT_TRUE(list.items[2]->truth);
  EXPECT_EQ(root.find("c"), nullptr);
  EXPECT_EQ(read(with_nul("\x80\x02\x8a\x02\x00\xff.", 7)).root().integer, -256);
  EXPECT_EQ(read(with_nul("\x80\x02\x8a\x05\x00\x00\x00\x00\x01.", 10)).root().integer,
            std::int64_t{1} << 32);
}

TEST(Pickle, ThatNamesWhatIsNotOnTheListIsRefusedByName) {
  EXPECT_THAT(refusal("cos\nsystem\n(S'rm'\ntR."),
              HasSubstr("x.pt: names os.system, which is not a class of tensors or containers: "
                        "the file may contain code and is not read"));
  EXPECT_THAT(refusal("c__builtin__\neval\n(S'1'\ntR."), HasSubstr("names __builtin__.eval,"));
  EXPECT_THAT(refusal("ctorch\nload\n(S'1'\ntR."), HasSubstr("names torch.load,"));
  EXPECT_THAT(refusal("\x80\x04\x8c\x05posix\x8c\x06system\x93)R."), HasSubstr("posix.system"));
  // A name with a point in it leads no further.
  EXPECT_THAT(refusal("\x80\x04\x8c\x05torch\x8c\x0e_utils.os.exit\x93)R."),
              HasSubstr("torch._utils.os.exit"));
  EXPECT_THAT(refusal("cmegatron.model.enums\nSomething\n."), HasSubstr("enums.Something"));
  EXPECT_THAT(refusal("(S'1'\nios\nsystem\n."), HasSubstr("the instruction 0x69"));
  EXPECT_THAT(refusal("\x80\x02\x82\x01."), HasSubstr("the instruction 0x82"));
}

TEST(Pickle, OfArgumentsKeepsThem) {
  const PickleDocument document =
      read(with_nul("cargparse\nNamespace\n)\x81}(X\x01\0\0\0aK\x05ub.", 35));
  EXPECT_EQ(document.root().text, "argparse.Namespace");
  EXPECT_EQ(document.root().find("a")->integer, 5);
}

// As torch saves a tensor to which a program has added attributes: a call of another call.
TEST(Pickle, OfATensorWithAttributesHoldsTheTensor) {
  const std::string type = "ctorch._tensor\n_rebuild_from_type_v2\n(";
  const std::string tensor =
      "ctorch._utils\n_rebuild_tensor_v2\nctorch\nTensor\n((S'storage'\nctorch\nFloatStorage\n"
      "S'0'\nS'cpu'\nI6\ntQI2\n(I3\nt(I1\ntt(d";
  const PickleDocument document = read(type + tensor + "tR.");
  ASSERT_EQ(document.root().kind, Kind::kTensor);
  EXPECT_EQ(document.root().tensor.offset, 2);
  EXPECT_EQ(document.root().tensor.shape, std::vector<std::int64_t>{3});
  for (const char* other : {"cargparse\nNamespace\n", "ctorch._tensor\n_rebuild_from_type_v2\n",
                            "ccollections\nOrderedDict\n", "S'a'\n"}) {
    EXPECT_THAT(refusal(type + other + "ctorch\nTensor\n(t(dtR."),
                HasSubstr("a tensor that no known call makes"));
  }
  EXPECT_THAT(refusal(type + "tR."), HasSubstr("a tensor that no known call makes"));
}

TEST(Pickle, ThatIsNoneIsRefused) {
  for (const std::string bad : {"",
                                ".",
                                "N",
                                "NN.",
                                "0.",
                                "(.",
                                "a.",
                                "(s.",
                                "h\x05.",
                                "I1x\n.",
                                "g9\n.",
                                "]Nu.",
                                "}(Nu.",
                                "\x80\x09N.",
                                "X\xff\xff\xff\x7f",
                                "(t",
                                "Nb.",
                                "NNR.",
                                "]]Q.",
                                "NQ.",
                                "\x8c\xff"
                                "a",
                                "2.",
                                "p0\n.",
                                "\x85.",
                                "(2.",
                                "NN\x93.",
                                "F1e\n."}) {
    EXPECT_THAT(refusal(bad), HasSubstr("x.pt: not a pickle of weights: ")) << bad;
  }
  EXPECT_THAT(refusal("N.N"), HasSubstr("1 bytes follow its end"));
}

// Few bytes that name the same list again and again.
TEST(Pickle, ThatWouldFillTheMemoryIsRefused) {
  std::string bomb = "\x80\x02](";
  bomb.append(1'000'000, 'N');
  bomb += "eq";
  bomb += '\0';
  bomb +=
      "0c__builtin__\ntuple\nq\x01"
      "0(";
  for (int i = 0; i < 100'000; ++i) {
    bomb += "h\x01h";
    bomb += '\0';
    bomb += "\x85R";
  }
  bomb += "t.";
  EXPECT_THAT(refusal(bomb), HasSubstr("it makes more than 1024 MiB"));
}

// One byte an instruction: to remember a value under a new number. It made 3 GB of 60 MB.
TEST(Pickle, ThatRemembersOneValueAgainAndAgainIsRefused) {
  EXPECT_THAT(refusal("\x80\x02}" + std::string(23'000'000, '\x94') + "."),
              HasSubstr("it makes more than 1024 MiB"));
}

// Six bytes for a tensor of 64 dims, which has a kilobyte of sizes and strides. It made 4 GB.
TEST(Pickle, OfManyTensorsOfManyDimsIsRefused) {
  const auto text = [](const std::string& word) {
    return "X" + std::string(1, static_cast<char>(word.size())) + std::string(3, '\0') + word;
  };
  std::string sizes = "(";
  for (int i = 0; i < 64; ++i) sizes += "K\x01";
  sizes += "t";
  std::string bomb =
      "\x80\x02"
      "ctorch._utils\n_rebuild_tensor_v2\nq";
  bomb += std::string(1, '\0') + "((" + text("storage") + "ctorch\nFloatStorage\n" + text("0") +
          text("cpu") + "K\x01tQK" + std::string(1, '\0') + sizes + sizes + "tq\x01";
  for (int i = 0; i < 900'000; ++i) bomb += std::string("h\0h\x01R0", 6);
  EXPECT_THAT(refusal(bomb + "N."), HasSubstr("it makes more than 1024 MiB"));
}

TEST(Pickle, MayReferToItself) {
  const PickleDocument document = read(
      "]q\x01h\x01"
      "a.");
  EXPECT_EQ(document.root().items[0], &document.root());
  const PickleDocument object = read(
      "cargparse\nNamespace\n)\x81q\x01h\x01"
      "b.");
  EXPECT_EQ(object.root().find("a"), nullptr);
}

}  // namespace
}  // namespace piton
