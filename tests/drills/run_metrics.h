// What a run has written about its steps, for drills. Needs nlohmann/json.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace piton::drill {

struct StepFigures {
  std::int64_t samples = 0;  // consumed so far
  double loss = 0;
  double norm = 0;  // of the gradient
};

// By iteration; of an iteration that was repeated the last.
inline std::map<std::int64_t, StepFigures> steps_of(const std::filesystem::path& run_folder) {
  std::map<std::int64_t, StepFigures> steps;
  std::ifstream stream(run_folder / "metrics.jsonl");
  for (std::string line; std::getline(stream, line);) {
    const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object() || !record.contains("lm_loss")) continue;
    steps[record.at("iteration").get<std::int64_t>()] = {
        .samples = record.at("consumed_samples").get<std::int64_t>(),
        .loss = record.at("lm_loss").get<double>(),
        .norm = record.at("grad_norm").get<double>()};
  }
  return steps;
}

}  // namespace piton::drill
