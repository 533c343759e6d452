// Encodes the elements of a prompt: special tokens of the template become their ids, and those that
// a record has in its content do not.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace piton {

// A part of an element.
struct ElementPart {
  std::string_view text;
  bool is_content = false;  // of a record; else of the template
};

class SpecialTexts {
 public:
  // `tokenizer` must outlive this.
  explicit SpecialTexts(const Tokenizer& tokenizer);

  bool occur_in(std::string_view text) const;

  // Appends the ids of the parts as one text, without tokens around it.
  void encode(const std::vector<ElementPart>& parts, std::vector<std::int32_t>& out) const;

 private:
  // The special text at `at`, the longest one; "" if there is none.
  std::string_view found_at(std::string_view text, std::size_t at) const;
  void encode_apart(const std::vector<ElementPart>& parts, std::vector<std::int32_t>& out) const;

  const Tokenizer* tokenizer_;
  std::vector<std::string> texts_;  // the longest first
  std::array<bool, 256> begins_{};  // whether a special text begins with this byte
};

}  // namespace piton
