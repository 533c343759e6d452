// The C interface in a program that passes what it must not pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <piton/piton_c.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "support/temp_folder.h"

namespace {

using testing::HasSubstr;

int give_zeros(void*, int64_t, int32_t* ids, int64_t length) {
  std::fill_n(ids, length, 0);
  return 0;
}

int ignore(void*, int32_t, double, const char*, size_t) { return 1; }

class CInterface : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(piton_engine_open(1, nullptr, nullptr, nullptr, &engine_, &error_), 0)
        << error_.message;
  }
  void TearDown() override {
    piton_model_close(model_);
    piton_trainer_close(trainer_);
    piton_engine_close(engine_);
  }

  // Opens a run of one step, which saves in `folder_`.
  void open_trainer() {
    const std::string folder = folder_.path().string();
    const std::vector<const char*> words = {
        "--model", "llama-tiny",       "--seq-length",  "8",      "--train-iters",
        "1",       "--tokenizer-type", "ByteTokenizer", "--save", folder.c_str()};
    const piton_samples samples{.count = 4, .read = give_zeros, .user = nullptr, .name = "zeros"};
    ASSERT_EQ(
        piton_trainer_open(engine_, {words.data(), words.size()}, &samples, &trainer_, &error_), 0)
        << error_.message;
  }
  void open_model() {
    open_trainer();
    ASSERT_EQ(piton_trainer_step(trainer_, nullptr, &error_), 0) << error_.message;
    ASSERT_EQ(piton_trainer_save(trainer_, &error_), 0) << error_.message;
    ASSERT_EQ(piton_trainer_finish(trainer_, &error_), 0) << error_.message;
    ASSERT_EQ(piton_model_load(engine_, folder_.path().c_str(), {nullptr, 0}, &model_, &error_), 0)
        << error_.message;
  }
  void expect_null(int code, const char* name) {
    EXPECT_EQ(code, 2) << name;
    EXPECT_EQ(error_.code, 2) << name;
    EXPECT_EQ(std::string(error_.message), std::string(name) + ": is null");
  }

  piton::TempFolder folder_;
  piton_error error_{};
  piton_engine* engine_ = nullptr;
  piton_trainer* trainer_ = nullptr;
  piton_model* model_ = nullptr;
};

// More would take all memory of the machine for their stacks.
TEST_F(CInterface, RefusesMoreThreadsThanThereCanBe) {
  piton_engine* engine = nullptr;
  for (const int threads : {-1, 8193, 1'000'000}) {
    EXPECT_EQ(piton_engine_open(threads, nullptr, nullptr, nullptr, &engine, &error_), 2);
    EXPECT_EQ(engine, nullptr);
    EXPECT_THAT(error_.message, HasSubstr("wanted 0 to 8192"));
  }
}

TEST_F(CInterface, RefusesWordsThatAreNull) {
  expect_null(piton_trainer_open(engine_, {nullptr, 3}, nullptr, &trainer_, &error_), "words");
  EXPECT_EQ(trainer_, nullptr);
  const char* const words[] = {"--mock-data", nullptr};
  expect_null(piton_trainer_open(engine_, {words, 2}, nullptr, &trainer_, &error_), "words[1]");
  expect_null(piton_model_load(engine_, "folder", {nullptr, 3}, &model_, &error_), "words");
  EXPECT_EQ(model_, nullptr);
}

// Index of the largest sample that was asked for.
int remember_largest(void* largest, int64_t index, int32_t* ids, int64_t length) {
  auto& known = *static_cast<int64_t*>(largest);
  known = std::max(known, index);
  std::fill_n(ids, length, 0);
  return 0;
}

TEST_F(CInterface, TakesSamplesForValidationAfterThoseForTraining) {
  int64_t largest = 0;
  piton_samples samples{.count = 4,
                        .read = remember_largest,
                        .user = &largest,
                        .name = "zeros",
                        .validation_count = 2};
  const std::vector<const char*> words = {
      "--model",      "llama-tiny", "--seq-length",       "8", "--train-iters",    "1",
      "--eval-iters", "1",          "--micro-batch-size", "2", "--tokenizer-type", "ByteTokenizer"};
  ASSERT_EQ(piton_trainer_open(engine_, {words.data(), words.size()}, &samples, &trainer_, &error_),
            0)
      << error_.message;
  double loss = 0;
  ASSERT_EQ(piton_trainer_evaluate(trainer_, &loss, &error_), 0) << error_.message;
  EXPECT_GT(loss, 0);
  EXPECT_EQ(largest, 5) << "samples 4 and 5";
  piton_trainer_close(trainer_);
  trainer_ = nullptr;
  samples.validation_count = 0;
  EXPECT_EQ(piton_trainer_open(engine_, {words.data(), words.size()}, &samples, &trainer_, &error_),
            2);
  EXPECT_THAT(error_.message,
              HasSubstr("--eval-iters: got 1, wanted 0: the program gives no samples"));
}

TEST_F(CInterface, RefusesNullForTextAndIds) {
  ASSERT_NO_FATAL_FAILURE(open_model());
  int32_t ids[4] = {1, 2, 3, 4};
  char text[4];
  size_t count = 0;
  expect_null(piton_model_encode(model_, nullptr, 2, 0, ids, 4, &count, &error_), "text");
  expect_null(piton_model_encode(model_, "ab", 2, 0, nullptr, 4, &count, &error_), "ids");
  expect_null(piton_model_encode(model_, "ab", 2, 0, ids, 4, nullptr, &error_), "count");
  expect_null(piton_model_decode(model_, ids, 4, nullptr, 4, &count, &error_), "text");
  expect_null(piton_model_decode(model_, nullptr, 4, text, 4, &count, &error_), "ids");
  expect_null(piton_model_generate(model_, ids, 1, {nullptr, 2}, ignore, nullptr, &error_),
              "words");
  expect_null(piton_model_generate(model_, nullptr, 1, {}, ignore, nullptr, &error_), "ids");
  expect_null(piton_model_score(model_, ids, 2, nullptr, &error_), "log_likelihood");
  expect_null(piton_model_logits(model_, ids, 2, nullptr, &error_), "logits");
  // Where nothing is read or written, null is right: this is how a length is asked for.
  EXPECT_EQ(piton_model_encode(model_, "ab", 2, 0, nullptr, 0, &count, &error_), 0);
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(piton_model_encode(model_, nullptr, 0, 0, nullptr, 0, &count, &error_), 0);
  EXPECT_EQ(count, 0U);
  EXPECT_EQ(piton_model_decode(model_, ids, 4, nullptr, 0, &count, &error_), 0);
  EXPECT_EQ(count, 4U);
}

TEST_F(CInterface, RefusesIdsOutsideOfTheVocabulary) {
  ASSERT_NO_FATAL_FAILURE(open_model());
  size_t bytes = 7;
  for (const int32_t id : {-1, static_cast<int32_t>(piton_model_vocabulary_size(model_))}) {
    EXPECT_EQ(piton_model_decode(model_, &id, 1, nullptr, 0, &bytes, &error_), 2);
    EXPECT_THAT(error_.message, HasSubstr("decode: id "));
    EXPECT_EQ(bytes, 7U);
  }
}

TEST_F(CInterface, RefusesHandlesThatAreNull) {
  expect_null(piton_trainer_step(nullptr, nullptr, &error_), "trainer");
  expect_null(piton_trainer_save(nullptr, &error_), "trainer");
  expect_null(piton_model_score(nullptr, nullptr, 0, nullptr, &error_), "model");
  // These have no piton_error: they return the exit code for wrong use, negative.
  EXPECT_EQ(piton_model_vocabulary_size(nullptr), -2);
  EXPECT_EQ(piton_model_max_positions(nullptr), -2);
  EXPECT_EQ(piton_model_parameters(nullptr), -2);
  EXPECT_EQ(piton_trainer_done(nullptr), -2);
  EXPECT_EQ(piton_trainer_save_due(nullptr), -2);
  EXPECT_EQ(piton_trainer_iteration(nullptr), -2);
  EXPECT_EQ(piton_trainer_sequence(nullptr), -2);
}

TEST_F(CInterface, CutsMessagesBetweenCharacters) {
  for (const std::string letter : {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x90\x8d"}) {
    for (int shift = 0; shift < 4; ++shift) {
      std::string path(static_cast<std::size_t>(shift), 'x');
      while (path.size() < 2 * sizeof error_.message) path += letter;
      ASSERT_NE(piton_model_load(engine_, path.c_str(), {nullptr, 0}, &model_, &error_), 0);
      const std::string message = error_.message;
      EXPECT_GT(message.size() + letter.size(), sizeof error_.message - 1);
      // The message has more of the path than of other text.
      EXPECT_TRUE(message.ends_with(letter)) << "shift " << shift << ": " << message;
    }
  }
}

TEST_F(CInterface, ReplacesBytesOfAMessageThatAreNoCharacters) {
  ASSERT_NE(piton_model_load(engine_,
                             "a\xff"
                             "b",
                             {nullptr, 0}, &model_, &error_),
            0);
  EXPECT_THAT(error_.message, HasSubstr("a\xef\xbf\xbd"
                                        "b"));
}

}  // namespace
