// Flags of AscendSpeed, MindSpeed-LLM and Megatron-LM (evaluation.py, inference.py, tasks/main.py,
// run_text_generation_server.py) that no option of `piton eval`, `generate`, `chat` or `serve` is
// called, so that their command lines need
// not be edited: sizes of the model, which are checked, other names, and what has no effect here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/options/options.h"
#include "model/config.h"

namespace piton::cli {

enum class InferenceCommand : std::uint8_t { kEval = 1, kGenerate = 2, kChat = 4, kServe = 8 };

class InferenceFlags final : public ForeignOptions {
 public:
  explicit InferenceFlags(InferenceCommand command) : command_(command) {}
  // The same, for the words that `set` parses; must outlive its parsing.
  InferenceFlags(InferenceCommand command, OptionSet& set) : command_(command) {
    set.set_foreign(this);
  }

  // Those of a table, the options of a model, and what `piton pretrain` takes.
  std::optional<int> words(std::string_view name) const override;
  std::vector<std::string> take(const std::string& name,
                                const std::vector<std::string>& values) override;

  // Throws Error(kUsage) for the first flag whose size differs from that of `model`. `load`: the
  // name of the model in the message. Logs a line for each reason why given flags have no effect.
  void check(const ModelConfig& model, const std::string& load, Log& log) const;

 private:
  void ignore(const std::string& name, std::string_view why);
  std::vector<std::string> task(const std::vector<std::string>& values) const;

  InferenceCommand command_;
  std::vector<std::pair<std::string_view, std::vector<std::string>>> ignored_;  // reason, flags
  std::map<std::string, std::int64_t> sizes_;
  std::int64_t empty_layers_ = 0;  // places of --num-layers without a layer
};

}  // namespace piton::cli
