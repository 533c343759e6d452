// The Hugging Face folders of tests/golden/huggingface (tools/oracle/huggingface.py).
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace piton::test {

inline std::filesystem::path golden_folder(const std::string& name) {
  return std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/huggingface" / name;
}

// At least one folder of each family, sorted by name.
inline std::vector<std::string> golden_folders() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder("")))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

// Those of encoders (tests/golden/encoders, tools/oracle/encoders.py).
inline std::filesystem::path encoder_folder(const std::string& name) {
  return std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/encoders" / name;
}

}  // namespace piton::test
