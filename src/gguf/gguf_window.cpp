#include "gguf/gguf_window.h"

namespace piton {

void read_gguf_window(const GgufKeys& keys, ModelConfig& model) {
  const GgufValue* value =
      keys.find_own(keys.description().architecture + ".attention.sliding_window");
  if (value != nullptr && value->is_integer() && value->integer() == 0) return;
  if (value != nullptr) model.window_before = keys.size("attention.sliding_window") - 1;
}

void write_gguf_window(const ModelConfig& model, GgufDescription& out) {
  if (model.window_before)
    out.add("attention.sliding_window", GgufValue::u32(*model.window_before + 1));
}

}  // namespace piton
