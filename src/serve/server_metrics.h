// What the server has done, in the text format of Prometheus.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "generate/decoding_engine.h"

namespace piton {

class ServerMetrics {
 public:
  // Thread-safe. `path`: of a route that exists, or "other".
  void add_request(const std::string& path, int status, double seconds);
  // The seconds from a request to its first token.
  void add_first_token(double seconds);

  // The page for /metrics.
  std::string text(const DecodingCounts& counts) const;

 private:
  static constexpr std::array<double, 10> kBounds = {0.01, 0.03, 0.1, 0.3, 1,
                                                     3,    10,   30,  100, 300};  // seconds
  struct Histogram {
    std::array<std::int64_t, kBounds.size() + 1> counts{};  // the last: above all bounds
    double sum = 0;
    void add(double seconds);
    std::string text(const std::string& name, const std::string& meaning) const;
  };

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::int64_t> requests_;
  Histogram durations_;
  Histogram first_tokens_;
};

}  // namespace piton
