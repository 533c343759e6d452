#include "gguf/vocabulary/word_cuts.h"

namespace piton {
namespace {

using ScannerKind = Scanner::Kind;

struct NamedCut {
  std::string_view name;
  WordCut cut;
};

// The first of a cut is the one that files are written with.
constexpr NamedCut kCuts[] = {
    {"gpt-2", {{ScannerKind::kGpt2, 0}, false, false}},
    {"llama-bpe", {{ScannerKind::kCl100k, 3}, true, false}},
    {"llama3", {{ScannerKind::kCl100k, 3}, true, false}},
    {"llama-v3", {{ScannerKind::kCl100k, 3}, true, false}},
    {"dbrx", {{ScannerKind::kCl100k, 3}, false, false}},
    {"smaug-bpe", {{ScannerKind::kCl100k, 3}, false, false}},
    {"qwen2", {{ScannerKind::kCl100k, 1}, false, true}},
    {"qwen35", {{ScannerKind::kCl100k, 1, true}, false, true}},
    {"stablelm2", {{ScannerKind::kCl100k, 1}, false, false}},
    {"bloom", {{ScannerKind::kBloom, 0}, false, false}},
};

}  // namespace

std::string word_cut_name(const WordCut& cut) {
  for (const NamedCut& one : kCuts) {
    if (one.cut == cut) return std::string(one.name);
  }
  return "";
}

std::optional<WordCut> word_cut(std::string_view name) {
  for (const NamedCut& one : kCuts) {
    if (one.name == name) return one.cut;
  }
  return std::nullopt;
}

}  // namespace piton
