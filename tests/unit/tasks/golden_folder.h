// Where the prompts and samples of lm-evaluation-harness are.
#pragma once

#include <filesystem>

namespace piton::test {

inline const std::filesystem::path kGolden =
    std::filesystem::path(PITON_SOURCE_DIR) / "tests" / "golden" / "evaluation";

}  // namespace piton::test
