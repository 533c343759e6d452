// The Hugging Face folders of tests/golden/encoders (tools/oracle/encoders.py).
#pragma once

#include <filesystem>
#include <string>

namespace piton::test {

inline std::filesystem::path encoder_folder(const std::string& name) {
  return std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/encoders" / name;
}

}  // namespace piton::test
