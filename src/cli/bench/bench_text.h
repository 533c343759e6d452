// Shared by `piton bench tokenizer` and `piton bench preprocess`. Both have separate options,
// because they read texts, not models.
#pragma once

#include "base/json.h"
#include "bench/text.h"

namespace piton::cli {

// {"mb_per_second", "mb_per_cpu_second", "best_seconds", "spread", "cpu_seconds", "seconds"}
nlohmann::ordered_json figures(const TextSamples& samples, std::int64_t bytes);

// Prints one line of JSON, or one line per number.
void print_figures(const nlohmann::ordered_json& result, bool json);

}  // namespace piton::cli
