// A hundred thousand nested levels in every parsed file: exit code 2 or 3 with one line, and no
// signal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "drills/tiny_run.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using drill::TinyRun;
using drill::Words;

constexpr int kDepth = 100'000;

std::string repeated(std::string_view text) {
  std::string result;
  for (int i = 0; i < kDepth; ++i) result += text;
  return result;
}

class Nests : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(tiny_.path(name)).parent_path());
    std::ofstream(tiny_.path(name), std::ios::binary) << text;
  }
  void expect_refused(const Words& words, const std::string& what) const {
    const ProcessEnd end = tiny_.run(words);
    EXPECT_TRUE(end.code == 2 || end.code == 3) << what << ": " << to_string(end) << "\n"
                                                << tiny_.shown().substr(0, 500);
  }
  // The forms that a nest in JSON may have, closed and not.
  static std::vector<std::string> json() {
    std::vector<std::string> forms = {repeated("["), repeated("{\"a\":") + "1" + repeated("}")};
    if (drill::whole()) {
      forms.push_back(repeated("[") + repeated("]"));
      forms.push_back(repeated("{\"a\":"));
      forms.push_back(repeated("[{\"a\":"));
    }
    return forms;
  }

  const TempFolder folder_;
  const TinyRun tiny_{folder_.path()};
};

TEST_F(Nests, OfTokenizerFilesAreRefused) {
  for (const std::string& nest : json()) {
    for (const char* file : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                             "added_tokens.json", "vocab.json"}) {
      fs::remove_all(tiny_.path("words"));
      put("words/merges.txt", "#version: 0.2\na b\n");
      put("words/vocab.json", "{\"a\":0,\"b\":1,\"ab\":2}");
      put(std::string("words/") + file, nest);
      expect_refused(
          {"tokenize", "--tokenizer-name-or-path", tiny_.path("words"), tiny_.path("text.txt")},
          file);
    }
    fs::remove_all(tiny_.path("words"));
    put("words/tokenizer.json",
        R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[)" + nest + R"(]}})");
    expect_refused(
        {"tokenize", "--tokenizer-name-or-path", tiny_.path("words"), tiny_.path("text.txt")},
        "merges");
  }
  std::string nested = R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"normalizer":)";
  nested += repeated(R"({"type":"Sequence","normalizers":[)") + repeated("]}") + "}";
  put("words/tokenizer.json", nested);
  expect_refused(
      {"tokenize", "--tokenizer-name-or-path", tiny_.path("words"), tiny_.path("text.txt")},
      "normalizer");
  for (const char* open : {"(", "(?:", "(?=", "[", "(a|"}) {
    put("words/tokenizer.json",
        R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"pre_tokenizer":{"type":"Split",)"
        R"("pattern":{"Regex":")" +
            repeated(open) + R"("},"behavior":"Isolated"}})");
    expect_refused(
        {"tokenize", "--tokenizer-name-or-path", tiny_.path("words"), tiny_.path("text.txt")},
        std::string("regular expression of ") + open);
  }
  // A SentencePiece model is a message of messages: field 1 with a length, again and again.
  std::string message;
  for (int i = 0; i < kDepth; ++i) message += "\x0A\x7F";
  fs::remove_all(tiny_.path("words"));
  put("words/tokenizer.model", message);
  expect_refused(
      {"tokenize", "--tokenizer-name-or-path", tiny_.path("words"), tiny_.path("text.txt")},
      "SentencePiece");
}

TEST_F(Nests, OfRecipesAreRefused) {
  for (const std::string& recipe :
       {repeated("a.") + "b = 1\n", "[" + repeated("a.") + "b]\nx = 1\n", "x = " + repeated("["),
        "x = " + repeated("{a = "), "x = " + repeated("[") + repeated("]") + "\n",
        repeated("\"a\".") + "b = 1\n", "[[" + repeated("a.") + "b]]\n",
        "x = {" + repeated("a.") + "b = 1}\n"}) {
    put("recipe.toml", recipe);
    expect_refused({"pretrain", tiny_.path("recipe.toml")}, recipe.substr(0, 20));
    expect_refused({"preprocess", "--config", tiny_.path("recipe.toml")}, recipe.substr(0, 20));
  }
}

TEST_F(Nests, OfRecordsAndListsAreRefused) {
  const auto preprocess = [&](const std::string& input, const Words& more = {}) {
    Words words = tiny_.preprocess("deep", more);
    words[2] = tiny_.path(input);
    return words;
  };
  for (const std::string& nest : json()) {
    put("deep.jsonl", "{\"text\": " + nest + "}\n");
    expect_refused(preprocess("deep.jsonl"), "JSONL");
    put("deep.json", "[{\"text\": \"a\", \"more\": " + nest + "}]");
    expect_refused(preprocess("deep.json"), "JSON");
    put("params.json", "{\"path\": " + nest + "}");
    expect_refused({"preprocess", "--hf-datasets-params", tiny_.path("params.json"),
                    "--tokenizer-type", "ByteTokenizer", "--output-prefix", tiny_.path("deep")},
                   "params");
    put("strings.jsonl", nest + "\n");
    expect_refused({"tokenize", "--tokenizer-type", "ByteTokenizer", "--json-strings",
                    tiny_.path("strings.jsonl")},
                   "strings");
    put("deep.preprocess.json", nest);
    expect_refused(preprocess("text.txt"), "journal");
    fs::remove(tiny_.path("deep.preprocess.json"));
  }
  put("wiki.xml", "<mediawiki>" + repeated("<page>") + repeated("</page>") + "</mediawiki>");
  const ProcessEnd wiki = tiny_.run(preprocess("wiki.xml"));
  EXPECT_GE(wiki.code, 0) << to_string(wiki);
  std::string markup = "<mediawiki><page><title>t</title><ns>0</ns><revision><text>";
  markup += repeated("{{a|") + repeated("[[b|") + repeated("}}") + "</text></revision></page>";
  put("wiki.xml", markup + "</mediawiki>");
  const ProcessEnd nested = tiny_.run(preprocess("wiki.xml", {"--overwrite"}));
  EXPECT_GE(nested.code, 0) << to_string(nested);
}

TEST_F(Nests, OfARunsFilesAreRefused) {
  ASSERT_EQ(tiny_.run(tiny_.pretrain("run", 2)), (ProcessEnd{.code = 0})) << tiny_.shown();
  for (const std::string& nest : json()) {
    for (const char* file : {"manifest.json", "state.json", "config.toml"}) {
      const std::string name = std::string("run/iter_0000002/") + file;
      const std::string whole = text_of(tiny_.path(name));
      put(name, nest);
      expect_refused({"generate", "--load", tiny_.path("run"), "--prompt-ids", "65"}, file);
      put(name, whole);
    }
    put("run/metrics.jsonl", nest + "\n{\"iteration\":1}\n");
    expect_refused(tiny_.pretrain("run", 2, {"--load", tiny_.path("run")}), "metrics");
    put("run/metrics.jsonl", "");
    put("ids.json", nest);
    expect_refused({"score", "--load", tiny_.path("run"), "--ids-file", tiny_.path("ids.json")},
                   "ids");
  }
  EXPECT_EQ(tiny_.run({"generate", "--load", tiny_.path("run"), "--prompt-ids", "65"}),
            (ProcessEnd{.code = 0}));
}

}  // namespace
}  // namespace piton
