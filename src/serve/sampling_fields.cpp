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

// Mirostat, with the names of llama.cpp's server, where it replaces filters and a temperature that
// follows the entropy; programs send the fields of both.
void read_mirostat(RequestFields& fields, SamplingOptions& sampling) {
  sampling.mirostat = fields.integer("mirostat", 0, 2).value_or(0);
  if (sampling.mirostat == 1) fields.fail("mirostat", "0 or 2 (Mirostat 2.0)");
  sampling.mirostat_surprise =
      fields.number("mirostat_tau", 0, kMostSurprise).value_or(sampling.mirostat_surprise);
  sampling.mirostat_rate = fields.number("mirostat_eta", 0, 1).value_or(sampling.mirostat_rate);
  if (sampling.mirostat_rate == 0) fields.fail("mirostat_eta", "a number above 0, at most 1");
  if (sampling.temperature == 0) sampling.mirostat = 0;
  if (sampling.mirostat == 0) return;
  const SamplingOptions usual;
  sampling.dynatemp_range = usual.dynatemp_range;
  sampling.top_k = usual.top_k;
  sampling.top_p = usual.top_p;
  sampling.min_p = usual.min_p;
  sampling.typical_p = usual.typical_p;
  sampling.top_n_sigma = usual.top_n_sigma;
  sampling.xtc_probability = usual.xtc_probability;
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
  read("dynatemp_range", 0, kMostTemperatureRange, sampling.dynatemp_range);
  read("dynatemp_exponent", 0, kMostTemperatureRange, sampling.dynatemp_exponent);
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
  read_mirostat(fields, sampling);
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
