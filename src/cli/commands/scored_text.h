// How probable a text is to a model: for score and quantize.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "api/model.h"
#include "base/log.h"
#include "base/progress.h"

namespace piton::cli {

// The text of a file ("-": standard input) as ids, in rows of the model's length; the first token
// of a row is the last one of the row before. `keys`: of JSON lines, whose texts are documents.
// Throws Error with the file for what cannot be read, and if the model has no tokenizer.
std::vector<std::vector<std::int32_t>> rows_to_score(const std::string& file,
                                                     std::vector<std::string> keys,
                                                     const SpecialTokensOptions& special,
                                                     const Model& model, Log& log);

struct TextLoss {
  double sum = 0;  // nats
  std::int64_t tokens = 0;

  double mean() const { return sum / static_cast<double>(tokens); }
};

// Collective over the model's ranks. `each`: called with the score of each sequence; may be empty.
TextLoss loss_of(Model& model, std::span<const std::vector<std::int32_t>> sequences,
                 Progress& progress, const std::function<void(const Model::Score&)>& each = {});

}  // namespace piton::cli
