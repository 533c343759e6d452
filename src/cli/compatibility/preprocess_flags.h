// Flags of MindSpeed-LLM's preprocess_data.py that `piton preprocess` does not have: some have no
// effect here, one is refused with the reason.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/options/options.h"

namespace piton::cli {

class PreprocessFlags final : public ForeignOptions {
 public:
  std::optional<int> words(std::string_view name) const override;
  // Throws Error(kUsage) for the refused one.
  std::vector<std::string> take(const std::string& name,
                                const std::vector<std::string>& values) override;

  // Logs a line for each given flag that has no effect here.
  void report(Log& log) const;

 private:
  std::vector<std::string> notes_;
};

}  // namespace piton::cli
