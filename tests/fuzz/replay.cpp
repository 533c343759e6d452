// Runs one fuzzer's body on a folder of examples without libFuzzer: on each example and on prefixes
// of it. A fault ends the program.
#include <cstdint>
#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "base/files/files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

// Prefixes of an example that are tried: a file of 16 KB is cut at every 256th byte.
constexpr std::size_t kCuts = 64;

void replay(const std::string& bytes) {
  const std::size_t step = bytes.size() / kCuts + 1;
  for (std::size_t size = 0; size < bytes.size(); size += step) {
    // A copy, so that a sanitizer sees every read after the end.
    const std::string prefix(bytes, 0, size);
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(prefix.data()), prefix.size());
  }
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  int examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    std::printf("%s\n", entry.path().c_str());
    std::fflush(stdout);
    replay(piton::read_text_file(entry.path()));
    ++examples;
  }
  return examples > 0 ? 0 : 1;
}
