// Flags of the evaluations of AscendSpeed, MindSpeed-LLM and Megatron-LM (evaluation.py,
// tasks/main.py) that no option of `piton eval` is called, so that their command lines need not be
// edited: sizes of the model, which are checked, other names, and what has no effect here.
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

class EvaluationFlags final : public ForeignOptions {
 public:
  std::optional<int> words(std::string_view name) const override;
  std::vector<std::string> take(const std::string& name,
                                const std::vector<std::string>& values) override;

  // Logs a line for each given flag that has no effect here.
  void report(Log& log) const;
  // Throws Error(kUsage) for the first flag whose size differs from that of `model`. `load`: the
  // name of the model in the message.
  void check(const ModelConfig& model, const std::string& load) const;

 private:
  std::vector<std::string> notes_;
  std::map<std::string, std::int64_t> sizes_;
};

}  // namespace piton::cli
