#include "serve/server_metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace piton {
namespace {

std::string one(const std::string& name, const char* type, const char* meaning,
                std::int64_t value) {
  return fmt::format("# HELP piton_{0} {2}\n# TYPE piton_{0} {1}\npiton_{0} {3}\n", name, type,
                     meaning, value);
}

}  // namespace

void ServerMetrics::Histogram::add(double seconds) {
  const auto at = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++counts[static_cast<std::size_t>(at - kBounds.begin())];
  sum += seconds;
}

std::string ServerMetrics::Histogram::text(const std::string& name,
                                           const std::string& meaning) const {
  std::string text =
      fmt::format("# HELP piton_{0} {1}\n# TYPE piton_{0} histogram\n", name, meaning);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < kBounds.size(); ++i) {
    total += counts[i];
    text += fmt::format("piton_{}_bucket{{le=\"{}\"}} {}\n", name, kBounds[i], total);
  }
  total += counts.back();
  text +=
      fmt::format("piton_{0}_bucket{{le=\"+Inf\"}} {1}\npiton_{0}_sum {2}\npiton_{0}_count {1}\n",
                  name, total, sum);
  return text;
}

void ServerMetrics::add_request(const std::string& path, int status, double seconds) {
  const std::lock_guard lock(mutex_);
  ++requests_[{path, status}];
  durations_.add(seconds);
}

void ServerMetrics::add_first_token(double seconds) {
  const std::lock_guard lock(mutex_);
  first_tokens_.add(seconds);
}

std::string ServerMetrics::text(const DecodingCounts& counts) const {
  std::string text =
      one("texts_running", "gauge", "texts with a place in the engine", counts.running);
  text += one("texts_waiting", "gauge", "texts without", counts.waiting);
  text += one("prompt_tokens_total", "counter", "tokens of prompts", counts.prompt_tokens);
  text += one("reused_tokens_total", "counter", "of them found in the cache", counts.reused_tokens);
  text += one("computed_tokens_total", "counter", "rows of passes", counts.computed_tokens);
  text += one("generated_tokens_total", "counter", "tokens written", counts.generated_tokens);
  text += one("passes_total", "counter", "passes of the engine", counts.passes);
  text += one("draft_tokens_total", "counter", "guesses that were read", counts.draft_tokens);
  text += one("accepted_tokens_total", "counter", "of them right", counts.accepted_tokens);
  const std::lock_guard lock(mutex_);
  text += "# HELP piton_requests_total answered requests\n# TYPE piton_requests_total counter\n";
  for (const auto& [key, count] : requests_) {
    text += fmt::format("piton_requests_total{{path=\"{}\",status=\"{}\"}} {}\n", key.first,
                        key.second, count);
  }
  text += durations_.text("request_seconds", "time from a request to the end of its answer");
  text += first_tokens_.text("first_token_seconds", "time from a request to its first token");
  return text;
}

}  // namespace piton
