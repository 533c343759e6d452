// Runs that start from the models of other programs.
#include "train/run/foreign_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/files/files.h"
#include "gguf/gguf_source.h"
#include "gguf/gguf_writer.h"
#include "huggingface/hf_source.h"
#include "support/errors.h"
#include "support/golden_huggingface.h"
#include "support/temp_folder.h"
#include "support/trainer_run.h"
#include "unit/model_files/small_vocabulary.h"

namespace piton {
namespace {

using test::EventSink;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

// The golden folder as a GGUF file.
void write_gguf_of(const std::string& model, const fs::path& file,
                   const GgufWriteOptions& options) {
  HfSource source(test::golden_folder(model));
  GgufWriteOptions all = options;
  const GgufDescription description =
      describe_gguf(source.model(), source.config().word("model_type"), "x");
  all.entries = {{"general.architecture", GgufValue::string(description.architecture)}};
  write_gguf(file, source, model_in_gguf(source.model()), description, all);
}

// Documents of ids below 100, which all of the models have.
void write_corpus(const fs::path& prefix) {
  IndexedWriter writer(prefix.string(), IdType::kUint16);
  for (int document = 0; document < 20; ++document) {
    std::vector<std::int32_t> ids;
    for (int place = 0; place < 40; ++place) ids.push_back((document * 7 + place * place) % 97 + 3);
    writer.add_sequence(ids);
    writer.end_document();
  }
  writer.finish();
}

class ForeignStart : public testing::Test {
 protected:
  ForeignStart() { write_corpus(dir_ / "corpus"); }

  PretrainOptions options_of(const fs::path& load, const std::vector<std::string>& more) const {
    std::vector<std::string> words{"--load", load.string()};
    const auto add = [&](const std::vector<std::string>& some) {
      words.insert(words.end(), some.begin(), some.end());
    };
    add({"--data-path", (dir_ / "corpus").string(), "--split", "100,0,0", "--seq-length", "16"});
    add({"--micro-batch-size", "2", "--lr", "1e-2", "--train-iters", "4"});
    add(more);
    PretrainOptions options;
    OptionSet set;
    options.add_to(set);
    set.parse(words);
    return options;
  }

  // Runs to the end, or for `steps`, and saves where the options say so.
  EventSink run(const fs::path& load, const std::vector<std::string>& more = {}, int steps = 100) {
    EventSink sink;
    const PretrainOptions options = options_of(load, more);
    Trainer trainer(own_.machine(), options, {&sink});
    tokenizer_hash_ = "";
    if (const auto fact = trainer.state().facts.find(kTokenizerFact);
        fact != trainer.state().facts.end())
      tokenizer_hash_ = fact->second;
    for (int i = 0; i < steps && !trainer.done(); ++i) trainer.step();
    if (!options.loop.save.empty()) trainer.save();
    return sink;
  }

  fs::path gguf_with_tokenizer() {
    const fs::path file = dir_ / "words.gguf";
    write_gguf_of("llama", file, {.vocabulary = vocabulary_entries(test::small_vocabulary(131))});
    return file;
  }

  TempFolder dir_;
  HostDevice device_;
  std::unique_ptr<World> world_ = make_single_world(device_);
  test::SmallMachine own_{*world_};
  std::string tokenizer_hash_;
};

// llama: rows of queries and keys are in another order in the file. qwen2: biases. gpt2: learned
// positions.
TEST_F(ForeignStart, FromAGgufFileHasTheLossesOfTheFolderThatItWasMadeOf) {
  for (const std::string model : {"llama", "qwen2", "gpt2"}) {
    SCOPED_TRACE(model);
    write_gguf_of(model, dir_ / "x.gguf", {});
    // Dropout is no entry of GGUF files.
    const std::vector<std::string> dropout{"--hidden-dropout", "0", "--attention-dropout", "0"};
    const EventSink folder = run(test::golden_folder(model), dropout);
    const EventSink file = run(dir_ / "x.gguf", dropout);
    ASSERT_EQ(folder.losses.size(), 4);
    EXPECT_EQ(file.losses, folder.losses);
    EXPECT_NE(file.losses.front(), file.losses.back());
    EXPECT_THAT(file.messages, Contains(HasSubstr("a new run from the weights of " +
                                                  (dir_ / "x.gguf").string() + " (GGUF file)")));
    fs::remove(dir_ / "x.gguf");
  }
}

TEST_F(ForeignStart, FromQuantizedWeightsTrainsTheirValues) {
  write_gguf_of("llama", dir_ / "q8.gguf", {.type = GgmlType::kQ80});
  const EventSink quantized = run(dir_ / "q8.gguf");
  EXPECT_THAT(quantized.messages,
              Contains(HasSubstr("q8.gguf: some of its weights are quantized; the run trains and "
                                 "saves their values")));
  const EventSink whole = run(test::golden_folder("llama"));
  EXPECT_NE(quantized.losses, whole.losses);
  EXPECT_NEAR(quantized.losses.front(), whole.losses.front(), 0.01);
}

TEST_F(ForeignStart, KeepsTheTokenizerOfAGgufFile) {
  const fs::path file = gguf_with_tokenizer();
  const std::string save = (dir_ / "run").string();
  run(file, {"--save", save}, 2);
  const std::string hash = tokenizer_hash_;
  EXPECT_NE(hash, "");
  const auto kept = open_tokenizer({.name_or_path = save + "/tokenizer"});
  EXPECT_EQ(kept->content_hash(), hash);
  EXPECT_EQ(kept->vocabulary_size(), 131);
  EXPECT_THAT(read_text_file(save + "/tokenizer/tokenizer_config.json"),
              HasSubstr("{{ messages }}"));
  // The same command continues, and so does a run without the file.
  const EventSink again = run(file, {"--save", save}, 1);
  EXPECT_THAT(again.messages,
              Contains(HasSubstr("holds iteration 2 of the run that started from")));
  EXPECT_EQ(tokenizer_hash_, hash);
  fs::remove(file);
  const EventSink end = run(save, {"--save", save});
  EXPECT_EQ(end.started.iteration, 3);
  EXPECT_EQ(tokenizer_hash_, hash);
  EXPECT_THAT(end.messages, Not(Contains(HasSubstr("another tokenizer"))));
}

TEST_F(ForeignStart, WithoutSaveOpensTheTokenizerInAGgufFile) {
  run(gguf_with_tokenizer(), {}, 1);
  EXPECT_NE(tokenizer_hash_, "");
}

TEST_F(ForeignStart, NotesATokenizerThatIsNotTheModels) {
  const fs::path file = gguf_with_tokenizer();
  write_text_file(dir_ / "words/vocab.txt", "[UNK]\n[CLS]\n[SEP]\n[PAD]\n[MASK]\nto\nbe\n");
  const std::string named = (dir_ / "words").string();
  const EventSink sink = run(file, {"--tokenizer-name-or-path", named}, 1);
  EXPECT_THAT(sink.messages,
              Contains(HasSubstr("the model has another tokenizer than the one that was named")));
  EXPECT_EQ(tokenizer_hash_, open_tokenizer({.name_or_path = named})->content_hash());
}

TEST_F(ForeignStart, WithFlagsThatContradictAGgufFileIsRefused) {
  const fs::path file = gguf_with_tokenizer();
  const auto refusal = [&](const std::vector<std::string>& more) {
    PretrainOptions options = options_of(file, more);
    return message_of(Fault::kUsage, [&] { adopt_foreign_model(options); });
  };
  EXPECT_THAT(refusal({"--num-layers", "3"}), HasSubstr("--num-layers: got 3, but the model of"));
  EXPECT_THAT(refusal({"--model", "llama-tiny"}), HasSubstr("says what the model is"));
}

TEST_F(ForeignStart, CompletesTheOptionsOfARun) {
  PretrainOptions options = options_of(gguf_with_tokenizer(), {"--save", (dir_ / "r").string()});
  const std::optional<OpenedModel> foreign = adopt_foreign_model(options);
  ASSERT_TRUE(foreign);
  EXPECT_FALSE(foreign->run);
  EXPECT_EQ(options.resolve_model(std::nullopt).hidden, 32);
  EXPECT_EQ(options.tokenizer.name_or_path, (dir_ / "r/tokenizer").string());
  PretrainOptions none = options_of("", {});
  EXPECT_FALSE(adopt_foreign_model(none));
}

}  // namespace
}  // namespace piton
