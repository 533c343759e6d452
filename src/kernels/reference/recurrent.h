// What the references of layers with a state share: the rows of each text.
#pragma once

#include <vector>

#include "kernels/recurrent/text_rows.h"

namespace piton::reference {

struct TextStretch {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t slot = -1;  // of the state; -1: there is none
  bool continues = false;  // the state has its rows of before
};

std::vector<TextStretch> rows_of_texts(const TextRows& texts, std::int64_t samples, std::int64_t n);

}  // namespace piton::reference
