// Flags of MindSpeed-LLM's and AscendSpeed's converters that no option of `piton convert` is
// called, so that their command lines need not be edited: other spellings (--num_layers), and what
// has no meaning here or is not there.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/options/options.h"

namespace piton::cli {

class ConverterFlags final : public ForeignOptions {
 public:
  std::optional<int> words(std::string_view name) const override;
  std::vector<std::string> take(const std::string& name,
                                const std::vector<std::string>& values) override;

  // Logs a line for each given flag that has no effect here.
  void report(Log& log) const;
  // Throws Error(kUsage) for a flag without which the result would be another one.
  // `rank_files`: the command writes files of Megatron's ranks.
  void check(bool rank_files) const;
  // --save-lora-to-hf: the adapters are written alone, which is --to peft, with --to hf too.
  bool writes_adapters() const { return writes_adapters_; }

 private:
  std::vector<std::string> notes_;
  bool has_grouped_experts_ = false;
  bool writes_adapters_ = false;
};

}  // namespace piton::cli
