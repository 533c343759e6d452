// Facts about a run from the files in its folder, while it is active or afterwards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/sinks/metrics.h"

namespace piton {

struct CheckpointRecord {
  std::int64_t iteration = 0;
  std::int64_t bytes = 0;
  std::string written;  // "2026-11-22 11:42", local time
};

struct RunRecord {
  std::string name;  // the folder's
  std::vector<StepMetrics> steps;
  // Every option that config.toml sets, with its value as written there.
  std::vector<std::pair<std::string, std::string>> options;
  std::vector<CheckpointRecord> checkpoints;                 // by iteration
  std::vector<std::pair<std::string, std::string>> samples;  // the first ones: title, text
  std::string failure;   // the message of failure.json; "" if there is none
  bool running = false;  // its lock has a living owner

  // The value of an option; "" if it is not set.
  std::string option(const std::string& key) const;
  // Of the whole run, or 0 where nothing says.
  std::int64_t planned_iterations() const;
};

// Throws Error(kData) if `folder` is not that of a run, or a file in it is damaged.
RunRecord read_run(const std::filesystem::path& folder);

}  // namespace piton
