// Runs whose steps drills compare, and what they have written about them.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "base/json.h"
#include "drills/tiny_run.h"

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
    const auto record = read_json_or_discarded<nlohmann::json>(line);
    if (!record.is_object() || !record.contains("lm_loss")) continue;
    steps[record.at("iteration").get<std::int64_t>()] = {
        .samples = record.at("consumed_samples").get<std::int64_t>(),
        .loss = record.at("lm_loss").get<double>(),
        .norm = record.at("grad_norm").get<double>()};
  }
  return steps;
}

// `piton pretrain` on the corpus in FOLDER, eight samples a step, that saves every five steps.
inline Words pretrain_in_steps(const std::filesystem::path& folder, int iterations,
                               const std::string& lr) {
  return pretrain(folder) + Words{"--seq-length",
                                  "16",
                                  "--global-batch-size",
                                  "8",
                                  "--micro-batch-size",
                                  "1",
                                  "--train-iters",
                                  std::to_string(iterations),
                                  "--lr",
                                  lr,
                                  "--save-interval",
                                  "5",
                                  "--log-interval",
                                  "1"};
}

// The steps of a run with `flags` of one process, in FOLDER/whole.
inline void run_whole(const Words& flags, const std::filesystem::path& folder, int iterations,
                      std::map<std::int64_t, StepFigures>* steps) {
  const std::filesystem::path whole = folder / "whole";
  ASSERT_EQ(run(flags + Words{"--save", whole.string()}, {.out = folder / "whole.log"}),
            (ProcessEnd{.code = 0}))
      << text_of(folder / "whole.log");
  *steps = steps_of(whole);
  ASSERT_EQ(std::ssize(*steps), iterations);
}

}  // namespace piton::drill
