// The canonical tensors of a model (docs/formats.md): the contents of a checkpoint, independent
// of the layout.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "tensor/shape.h"

namespace piton {

struct CanonicalShape {
  std::string name;
  Shape shape;  // [out, in], or [size]
};

// In the order of the model: embedding, layers, final norm, head. A tied head is not listed. An
// encoder with norms after the residual sums has one of the embedding and none at the end.
std::vector<CanonicalShape> canonical_tensors(const ModelConfig& config);

// What a letter of --hybrid-override-pattern is: what a layer begins with, or its MLP (or experts).
// Formats of such models give each letter a number.
struct PatternLetter {
  std::int64_t layer = 0;
  bool mlp = false;
};
// In order; of a model without a pattern none.
std::vector<PatternLetter> pattern_letters(const ModelConfig& config);
// The number of the letter of which a tensor is: `part` is its canonical name after "layers.N.".
std::int64_t letter_number(const std::vector<PatternLetter>& letters, std::int64_t layer,
                           std::string_view part);

// Before the list of a model's tensors is made, of which files hold `tensors`. Throws Error(kData)
// with `where` for so many layers that the list itself would fill the memory.
void check_layers(const ModelConfig& config, std::int64_t tensors, const std::string& where);

}  // namespace piton
