// Flags of MindSpeed-LLM's preprocess_data.py that `piton preprocess` refuses, with the reason.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/options/options.h"

namespace piton::cli {

class PreprocessFlags final : public ForeignOptions {
 public:
  std::optional<int> words(std::string_view name) const override;
  // Throws Error(kUsage).
  std::vector<std::string> take(const std::string& name,
                                const std::vector<std::string>& values) override;
};

}  // namespace piton::cli
