// Working memory of sentencepiece_tokenizer.cpp and its encoders. Private to them.
#pragma once

#include "text/sentencepiece/sentencepiece_tokenizer.h"

namespace piton {

struct SentencePieceTokenizer::Scratch {
  struct Node {
    std::int32_t piece = 0;
    float score = 0;
    std::ptrdiff_t from = -1;  // -1: not reached
  };
  std::unique_ptr<BpeMerger> merger;
  WordCache cache;
  std::vector<std::int32_t> symbols;
  std::vector<std::int32_t> part_ids;
  std::vector<AddedTokenMatcher::Part> parts;
  std::vector<Node> nodes;
  std::vector<std::pair<std::size_t, std::int32_t>> path;
};

}  // namespace piton
