#include "train/metrics.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/files.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN: null stands for it.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string kept_lines(const std::filesystem::path& path, std::int64_t iteration) {
  std::string kept;
  if (!std::filesystem::exists(path)) return kept;
  std::istringstream lines(read_text_file(path));
  std::string line;
  for (std::int64_t index = 1; std::getline(lines, line); ++index) {
    const Json object = Json::parse(line, nullptr, false);
    if (object.is_discarded() || !object.is_object() || !object.contains("iteration")) {
      // The last line may have been cut by a crash.
      if (lines.peek() == std::istringstream::traits_type::eof()) break;
      throw Error(Fault::kData,
                  "{}:{}: not a line of metrics; move the file away to start a new one",
                  path.string(), index);
    }
    if (object["iteration"].get<std::int64_t>() > iteration) break;
    kept += line + "\n";
  }
  return kept;
}

}  // namespace

std::string to_json(const StepMetrics& metrics) {
  Json memory;
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    memory[std::string(name(static_cast<MemoryKind>(kind)))] = metrics.memory.peak_bytes[kind];
  }
  memory["total"] = metrics.memory.peak_total_bytes;
  Json json{{"iteration", metrics.iteration},
            {"consumed_samples", metrics.consumed_samples},
            {"consumed_tokens", metrics.consumed_tokens},
            {"lm_loss", number(metrics.lm_loss)},
            {"grad_norm", number(metrics.grad_norm)},
            {"learning_rate", metrics.learning_rate},
            {"loss_scale", metrics.loss_scale},
            {"tokens_per_second", metrics.tokens_per_second},
            {"model_tflops", metrics.model_tflops},
            {"share_of_peak", metrics.share_of_peak},
            {"elapsed_ms", metrics.elapsed_ms},
            {"skipped", metrics.skipped},
            {"memory_bytes", memory},
            {"comm_bytes",
             {{"all_reduce", metrics.traffic.all_reduce_bytes},
              {"all_gather", metrics.traffic.all_gather_bytes},
              {"reduce_scatter", metrics.traffic.reduce_scatter_bytes},
              {"broadcast", metrics.traffic.broadcast_bytes},
              {"point_to_point", metrics.traffic.point_to_point_bytes}}}};
  if (metrics.validation_loss) json["validation_loss"] = number(*metrics.validation_loss);
  return json.dump();
}

MetricsFile::MetricsFile(const std::filesystem::path& path, std::int64_t iteration) : path_(path) {
  write_text_file(path, kept_lines(path, iteration));
  file_.open(path, std::ios::app);
}

void MetricsFile::write(const StepMetrics& metrics) {
  file_ << to_json(metrics) << "\n" << std::flush;
  if (!file_) throw Error(Fault::kData, "{}: cannot write; is the disk full?", path_.string());
}

}  // namespace piton
