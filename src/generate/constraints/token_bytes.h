// The bytes of each token of a vocabulary, and a tree of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace piton {

// The bytes that `id` adds to a text that goes before it; "" for special tokens and ids without
// text. A token of a byte fallback ("<0x0A>") is its byte.
std::string token_bytes(const Tokenizer& tokenizer, std::int32_t id);

// All tokens with bytes as a tree over them, in the order of a walk that enters a node before its
// children.
class TokenTree {
 public:
  struct Node {
    std::uint8_t byte = 0;      // the last of its bytes
    std::int32_t depth = 0;     // number of its bytes - 1
    std::int32_t next = 0;      // the first node that does not begin with its bytes
    std::int32_t first_id = 0;  // ids()[first_id .. last_id) have exactly its bytes
    std::int32_t last_id = 0;
  };

  // `vocabulary`: ids of the model; a tokenizer may have fewer.
  TokenTree(const Tokenizer& tokenizer, std::int64_t vocabulary);

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<std::int32_t>& ids() const { return ids_; }
  const std::string& bytes(std::int32_t id) const { return bytes_[static_cast<std::size_t>(id)]; }
  std::int64_t vocabulary() const { return static_cast<std::int64_t>(bytes_.size()); }

 private:
  std::vector<std::string> bytes_;  // of each id
  std::vector<std::int32_t> ids_;   // sorted by their bytes
  std::vector<Node> nodes_;
};

}  // namespace piton
