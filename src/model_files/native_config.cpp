#include "model_files/native_config.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/manifest.h"
#include "model_files/model_tokenizer.h"

namespace piton {
namespace {

constexpr const char* kModelTable = "[model]";
constexpr const char* kTokenizerTable = "[tokenizer]";
constexpr const char* kAdaptersTable = "[adapters]";

// The keys of these tables, in text that OptionSet::to_toml() wrote.
std::vector<std::string> keys_of_own_tables(const std::string& text) {
  std::vector<std::string> keys;
  bool own = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("["))
      own = line == kModelTable || line == kTokenizerTable || line == kAdaptersTable;
    const std::size_t equals = line.find(" = ");
    if (own && equals != line.npos && !line.starts_with("#"))
      keys.push_back(line.substr(0, equals));
  }
  return keys;
}

// Skips the options of a run that say nothing of its model. An unknown option of the model, as a
// later version may have written, would make it another one: it is refused.
class OtherOptions final : public ForeignOptions {
 public:
  explicit OtherOptions(std::vector<std::string> refused) : refused_(std::move(refused)) {}
  std::optional<int> words(std::string_view name) const override {
    return std::ranges::find(refused_, name) == refused_.end() ? std::optional(kAnyWords)
                                                               : std::nullopt;
  }
  std::vector<std::string> take(const std::string&, const std::vector<std::string>&) override {
    return {};
  }

 private:
  std::vector<std::string> refused_;
};

// Of the run, where its model comes from.
struct BaseOption {
  std::string load;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"load", "folder of the model"}, load);
  }
};

}  // namespace

NativeConfig read_native_config(const std::filesystem::path& checkpoint) {
  const std::string text = read_config(checkpoint, read_manifest(checkpoint));
  NativeConfig config;
  OtherOptions others(keys_of_own_tables(text));
  BaseOption base;
  OptionSet set;
  set.add("Model", config.model);
  set.add("Training", base);
  set.add("Adapters", config.lora);
  set.add("Tokenizer", config.tokenizer);
  set.set_foreign(&others);
  set.read_toml_text(text, (checkpoint / kConfigName).string());
  if (config.lora.given()) config.base = base.load;
  config.tokenizer = kept_tokenizer(config.tokenizer, std::filesystem::absolute(checkpoint));
  return config;
}

ModelConfig resolve_model(const ModelOptions& model, const TokenizerOptions& tokenizer,
                          std::optional<std::int64_t> tokenizer_vocabulary) {
  ModelOptions named = model;
  if (tokenizer.is_null() && named.vocabulary) *named.vocabulary += 1;
  return named.resolve(tokenizer_vocabulary);
}

}  // namespace piton
