// The cases of tests/golden/rotary.jsonl (tools/oracle/rotary.py).
#pragma once

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/rotary.h"

namespace piton::test {

struct GoldenRotary {
  std::string line;
  double base = 0;
  std::int64_t channels = 0;
  std::int64_t positions = 0;
  std::int64_t sequence = 0;
  double share = 1;
  bool pairs = false;
  RotaryScaling scaling;
  double magnitude = 1;
  std::vector<double> frequencies;
  std::optional<double> loss;
  double gradient_norm = 0;
};

inline RotaryScaling golden_scaling(const nlohmann::json& rope, std::int64_t positions) {
  using Kind = RotaryScaling::Kind;
  const std::string type = rope.at("rope_type");
  RotaryScaling s{.kind = type == "linear"     ? Kind::kLinear
                          : type == "dynamic"  ? Kind::kDynamic
                          : type == "llama3"   ? Kind::kLlama3
                          : type == "yarn"     ? Kind::kYarn
                          : type == "longrope" ? Kind::kLongrope
                                               : Kind::kNone};
  s.factor = rope.value("factor", 1.0);
  s.original_positions = rope.value("original_max_position_embeddings", positions);
  s.low = rope.value("low_freq_factor", s.low);
  s.high = rope.value("high_freq_factor", s.high);
  s.fast = rope.value("beta_fast", s.fast);
  s.slow = rope.value("beta_slow", s.slow);
  s.whole_pairs = rope.value("truncate", true);
  s.numerator = rope.value("mscale", 0.0);
  s.denominator = rope.value("mscale_all_dim", 0.0);
  if (rope.contains("attention_factor")) s.magnitude = rope.at("attention_factor").get<double>();
  s.short_factors = rope.value("short_factor", std::vector<double>());
  s.long_factors = rope.value("long_factor", std::vector<double>());
  return s;
}

inline std::vector<GoldenRotary> golden_rotary() {
  std::ifstream file(std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/rotary.jsonl");
  std::vector<GoldenRotary> cases;
  std::string line;
  std::getline(file, line);  // the first line describes the file
  while (std::getline(file, line)) {
    const auto row = read_json<nlohmann::json>(line);
    GoldenRotary one{.line = line.substr(0, 120),
                     .base = row.at("rope").at("rope_theta"),
                     .channels = row.at("channels"),
                     .positions = row.at("positions"),
                     .sequence = row.at("sequence"),
                     .share = row.at("share"),
                     .pairs = row.at("pairs"),
                     .magnitude = row.at("magnitude"),
                     .frequencies = row.at("frequencies")};
    one.scaling = golden_scaling(row.at("rope"), one.positions);
    if (row.contains("loss")) {
      one.loss = row.at("loss").get<double>();
      one.gradient_norm = row.at("gradient_norm");
    }
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace piton::test
