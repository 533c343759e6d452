#include "serve/sampling_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <random>

#include "serve/served_model.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostBreakers = 16;

// An object with ids of tokens as names, as OpenAI has it.
void read_bias(RequestFields& fields, SamplingOptions& sampling, std::int64_t vocabulary) {
  const Json* biases = fields.value("logit_bias");
  if (biases == nullptr) return;
  const auto fail = [&] {
    fields.fail("logit_bias",
                fmt::format("an object with ids of tokens (0 to {}) and numbers from -100 to 100",
                            vocabulary - 1));
  };
  if (!biases->is_object()) fail();
  for (const auto& [name, bias] : biases->items()) {
    std::int32_t id = -1;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), id);
    const bool is_id = read.ec == std::errc() && read.ptr == name.data() + name.size() && id >= 0 &&
                       id < vocabulary;
    if (!is_id || !bias.is_number() || std::abs(bias.get<double>()) > 100) fail();
    sampling.bias_texts.push_back(fmt::format("{}={}", id, bias.get<double>()));
  }
}

// The DRY penalty, with the names of llama.cpp's server.
void read_runs(RequestFields& fields, SamplingOptions& sampling, std::int64_t longest) {
  RunPenalty& dry = sampling.dry;
  dry.multiplier = fields.number("dry_multiplier", 0, kMostRunPenalty).value_or(dry.multiplier);
  dry.base = fields.number("dry_base", 1, kMostRunPenalty).value_or(dry.base);
  dry.allowed_length =
      fields.integer("dry_allowed_length", 0, longest).value_or(dry.allowed_length);
  dry.last_tokens = fields.integer("dry_penalty_last_n", -1, longest).value_or(dry.last_tokens);
  sampling.dry_breakers = fields.texts("dry_sequence_breakers", kMostBreakers);
}

}  // namespace

void read_sampling(RequestFields& fields, SamplingOptions& sampling, const ServedModel& model) {
  const auto read = [&](const char* field, double least, double most, double& place) {
    place = fields.number(field, least, most).value_or(place);
  };
  // A temperature near 0 divides logits to infinity; 0 is the greedy choice.
  read("temperature", 0, 100, sampling.temperature);
  read("top_p", 0, 1, sampling.top_p);
  read("min_p", 0, 1, sampling.min_p);
  read("repetition_penalty", kLeastRepetitionPenalty, kMostRepetitionPenalty,
       sampling.repetition_penalty);
  read("presence_penalty", -2, 2, sampling.presence_penalty);
  read("frequency_penalty", -2, 2, sampling.frequency_penalty);
  if (sampling.temperature > 0 && sampling.temperature < 1e-4) sampling.temperature = 0;
  read("typical_p", 0, 1, sampling.typical_p);
  read("top_n_sigma", -1, kMostPenalty, sampling.top_n_sigma);
  sampling.top_n_sigma = std::max(sampling.top_n_sigma, 0.0);  // -1 is llama.cpp's "all"
  read("xtc_probability", 0, 1, sampling.xtc_probability);
  read("xtc_threshold", 0, 1, sampling.xtc_threshold);
  if (sampling.typical_p == 0) fields.fail("typical_p", "a number above 0, at most 1");
  if (sampling.xtc_threshold == 0) fields.fail("xtc_threshold", "a number above 0, at most 1");
  if (sampling.top_p == 0) fields.fail("top_p", "a number above 0, at most 1");
  if (const auto top_k = fields.integer("top_k", -1, model.vocabulary()))
    sampling.top_k = std::max<std::int64_t>(*top_k, 0);
  sampling.no_repeat_ngram_size =
      fields.integer("no_repeat_ngram_size", 0, model.longest_sequence()).value_or(0);
  read_runs(fields, sampling, model.longest_sequence());
  read_bias(fields, sampling, model.vocabulary());
  if (const auto seed = fields.integer("seed", std::numeric_limits<std::int64_t>::min(),
                                       std::numeric_limits<std::int64_t>::max())) {
    sampling.seed = static_cast<std::uint64_t>(*seed);
  } else {
    std::random_device device;
    sampling.seed = static_cast<std::uint64_t>(device()) << 32 | device();
  }
  sampling.settle();
}

}  // namespace piton
