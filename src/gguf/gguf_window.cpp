#include "gguf/gguf_window.h"

#include <algorithm>
#include <vector>

namespace piton {
namespace {

constexpr const char* kWindow = "attention.sliding_window";
constexpr const char* kPattern = "attention.sliding_window_pattern";

}  // namespace

void read_gguf_window(const GgufKeys& keys, ModelConfig& model) {
  const GgufValue* value = keys.find(kWindow);
  if (value != nullptr && value->is_integer() && value->integer() == 0) return;
  if (value != nullptr) model.window_before = keys.size(kWindow) - 1;
}

void write_gguf_window(const ModelConfig& model, GgufDescription& out) {
  if (model.window_before) out.add(kWindow, GgufValue::u32(*model.window_before + 1));
}

void write_required_gguf_window(const ModelConfig& model, GgufDescription& out) {
  out.add(kWindow,
          GgufValue::u32(model.window_before ? *model.window_before + 1 : model.max_positions));
}

void read_gguf_pattern(const GgufKeys& keys, std::int64_t usual, ModelConfig& model) {
  const GgufValue* value = keys.find(kPattern);
  if (value == nullptr || value->kind != GgufKind::kArray) {
    model.full_attention_every = keys.count(kPattern, usual);
    return;
  }
  const std::vector<bool> flags = value->flags();  // whether each layer has the window
  if (std::ssize(flags) != model.layers) keys.refuse(kPattern, "a flag for each layer");
  const auto full = std::ranges::find(flags, false);
  const std::int64_t every = full == flags.end() ? 0 : full - flags.begin() + 1;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const bool windowed = every == 0 || (layer + 1) % every != 0;
    if (flags[static_cast<std::size_t>(layer)] != windowed)
      keys.refuse(kPattern, "layers without the window in equal distances");
  }
  model.full_attention_every = every;
  if (every == 1) model.window_before.reset();
}

void write_gguf_pattern(const ModelConfig& model, std::int64_t usual, GgufDescription& out) {
  if (model.window_before && model.full_attention_every != usual)
    out.add(kPattern, GgufValue::u32(model.full_attention_every));
}

}  // namespace piton
