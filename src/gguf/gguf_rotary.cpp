#include "gguf/gguf_rotary.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace piton {
namespace {

using Kind = RotaryScaling::Kind;

constexpr const char* kGrowth = "attention.temperature_scale";
constexpr const char* kLatentYarn = "rope.scaling.yarn_log_multiplier";
constexpr const char* kFast = "rope.scaling.yarn_beta_fast";
constexpr const char* kSlow = "rope.scaling.yarn_beta_slow";
constexpr const char* kExtrapolated = "rope.scaling.yarn_ext_factor";
constexpr const char* kYarnMagnitude = "rope.scaling.yarn_attn_factor";
constexpr const char* kMagnitudeFactor = "rope.scaling.attn_factor";
constexpr const char* kSections = "rope.dimension_sections";
constexpr std::int64_t kPositionsOfToken = 3;
constexpr std::int64_t kLongestSection = 1 << 16;  // of pairs: far more than heads have
constexpr const char* kOwnKind = "piton.rope.scaling.type";
constexpr const char* kOwnFactor = "piton.rope.scaling.factor";
constexpr const char* kOwnLow = "piton.rope.scaling.low_freq_factor";
constexpr const char* kOwnHigh = "piton.rope.scaling.high_freq_factor";
constexpr const char* kOwnOriginal = "piton.rope.scaling.original_context_length";

// f_i / (what `scaling` makes of f_i).
std::vector<float> divisors_of(const ModelConfig& model, const RotaryScaling& scaling) {
  const std::int64_t channels = model.rotary_channels();
  const std::vector<double> plain = rotary_frequencies(model.rotary_base, channels, {}, 0);
  const std::vector<double> scaled = rotary_frequencies(model.rotary_base, channels, scaling, 0);
  std::vector<float> divisors;
  for (std::size_t i = 0; i < plain.size(); ++i)
    divisors.push_back(static_cast<float>(plain[i] / scaled[i]));
  return divisors;
}

// Other programs compute them in fp32.
bool alike(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!(std::abs(a[i] - b[i]) <= 1e-4F * std::abs(b[i]))) return false;
  }
  return true;
}

const std::vector<float>& table_of(const GgufKeys& keys, const char* name,
                                   const ModelConfig& model) {
  const auto found = keys.description().tables.find(name);
  const auto wanted = static_cast<std::size_t>(model.rotary_channels() / 2);
  if (found == keys.description().tables.end() || found->second.size() != wanted) {
    throw Error(Fault::kData, "{}: {}: wanted a table of {} numbers", keys.where(), name, wanted);
  }
  return found->second;
}

std::vector<double> doubles(const std::vector<float>& values) {
  std::vector<double> result;
  for (const float value : values) result.push_back(std::stod(fmt::format("{}", value)));
  return result;
}

std::optional<RotaryScaling> own_llama3(const GgufKeys& keys) {
  const GgufValue* kind = keys.find_own(kOwnKind);
  if (kind == nullptr || kind->text != "llama3") return std::nullopt;
  RotaryScaling scaling{.kind = Kind::kLlama3};
  const auto number = [&](const char* key) {
    const GgufValue* value = keys.find_own(key);
    if (value == nullptr || !value->is_number() || !std::isfinite(value->number()))
      throw Error(Fault::kData, "{}: {}: wanted a number", keys.where(), key);
    return value->number();
  };
  scaling.factor = number(kOwnFactor);
  scaling.low = number(kOwnLow);
  scaling.high = number(kOwnHigh);
  const GgufValue* original = keys.find_own(kOwnOriginal);
  if (original == nullptr || !original->is_integer() || original->integer() < 1)
    throw Error(Fault::kData, "{}: {}: wanted a positive integer", keys.where(), kOwnOriginal);
  scaling.original_positions = original->integer();
  return scaling;
}

// The formula that the divisors follow, if it is one of those that published models have, or that
// of Piton's own entries; else the divisors themselves.
RotaryScaling scaling_of_divisors(const GgufKeys& keys, const ModelConfig& model) {
  const std::vector<float>& divisors = table_of(keys, kRopeDivisors, model);
  std::vector<RotaryScaling> known;
  for (const double factor : {8.0, 32.0, 2.0, 4.0, 16.0}) {
    known.push_back(
        {.kind = Kind::kLlama3, .factor = factor, .original_positions = 8192, .low = 1, .high = 4});
  }
  if (const std::optional<RotaryScaling> own = own_llama3(keys)) known.insert(known.begin(), *own);
  for (const RotaryScaling& scaling : known) {
    if (scaling.factor >= 1 && scaling.low < scaling.high &&
        alike(divisors, divisors_of(model, scaling)))
      return scaling;
  }
  return {.kind = Kind::kLongrope,
          .original_positions = model.max_positions,
          .magnitude = 1,
          .short_factors = doubles(divisors),
          .long_factors = doubles(divisors)};
}

RotaryScaling longrope(const GgufKeys& keys, const ModelConfig& model) {
  RotaryScaling scaling{.kind = Kind::kLongrope};
  scaling.original_positions =
      keys.size("rope.scaling.original_context_length", model.max_positions);
  scaling.factor =
      static_cast<double>(model.max_positions) / static_cast<double>(scaling.original_positions);
  scaling.magnitude = keys.number(kMagnitudeFactor, 1.0);
  scaling.short_factors = doubles(table_of(keys, kShortDivisors, model));
  scaling.long_factors = doubles(table_of(keys, kLongDivisors, model));
  return scaling;
}

// The value of yarn_log_multiplier for a factor, as a file has it, and the factor that it says.
double gguf_yarn_key(double factor) { return GgufValue::f32(factor / 10).number(); }

double gguf_yarn_factor(double key) { return GgufValue::f32(10 * key).number(); }

// llama.cpp takes both factors of yarn to be the same, and has another form of scores where the key
// is 0.
void read_latent_yarn(const GgufKeys& keys, RotaryScaling& scaling) {
  const double key = keys.number(kLatentYarn);
  if (key == 0) keys.refuse(kLatentYarn, "a tenth of mscale_all_dim, which is not 0");
  scaling.numerator = scaling.denominator = gguf_yarn_factor(key);
}

// The magnitude of yarn's formula, whatever the model has.
double formula_magnitude(const RotaryScaling& scaling) {
  return rotary_magnitude({.kind = Kind::kYarn, .factor = scaling.factor});
}

// llama.cpp multiplies the magnitude of its formula with attn_factor. It does not read
// yarn_attn_factor where it has a formula, but programs that write files put attention_factor of
// Hugging Face there: a value that neither of them means is refused.
void read_yarn(const GgufKeys& keys, bool latent, RotaryScaling& scaling) {
  scaling.original_positions = keys.size("rope.scaling.original_context_length");
  scaling.fast = keys.number(kFast, scaling.fast);
  scaling.slow = keys.number(kSlow, scaling.slow);
  const double extrapolated = keys.number(kExtrapolated, 1.0);
  if (extrapolated >= 0 && extrapolated != 1) keys.refuse(kExtrapolated, "1");
  const double magnitude = formula_magnitude(scaling);
  const double said = keys.number(kYarnMagnitude, 1.0);
  if (said >= 0 && said != 1 && std::abs(said - magnitude) > 1e-4)
    keys.refuse(kYarnMagnitude, fmt::format("1, or {:.6g} as its formula has it", magnitude));
  const double factor = keys.number(kMagnitudeFactor, 1.0);
  if (latent) {
    if (factor != 1) keys.refuse(kMagnitudeFactor, "1 in a model with latent attention");
    return read_latent_yarn(keys, scaling);
  }
  if (factor != 1) scaling.magnitude = factor * magnitude;
}

// Of a file whose scaling is not yarn: they would change the angles all the same.
void refuse_keys_of_yarn(const GgufKeys& keys) {
  if (keys.number(kMagnitudeFactor, 1.0) != 1)
    keys.refuse(kMagnitudeFactor, "1, or scaling of type yarn or longrope");
  if (keys.number(kExtrapolated, 0.0) > 0) keys.refuse(kExtrapolated, "0, or scaling of type yarn");
}

}  // namespace

RotaryScaling yarn_in_gguf(RotaryScaling scaling, bool latent) {
  const auto in_fp32 = [](double value) { return GgufValue::f32(value).number(); };
  scaling.fast = in_fp32(scaling.fast);
  scaling.slow = in_fp32(scaling.slow);
  if (latent) {
    for (double* factor : {&scaling.numerator, &scaling.denominator})
      *factor = gguf_yarn_factor(gguf_yarn_key(*factor));
    return scaling;
  }
  const double formula = formula_magnitude(scaling);
  const double factor = in_fp32(rotary_magnitude(scaling) / formula);
  scaling.numerator = scaling.denominator = 0;
  scaling.magnitude.reset();
  if (factor != 1) scaling.magnitude = factor * formula;
  return scaling;
}

void read_gguf_rotary(const GgufKeys& keys, ModelConfig& model) {
  model.rotary_base = keys.number("rope.freq_base", 10000.0);
  const std::int64_t channels = keys.size("rope.dimension_count", model.head_size);
  if (channels > model.head_size || channels % 2 != 0)
    keys.refuse("rope.dimension_count", "an even number of a head's channels");
  if (!model.latent)
    model.rotary_share = static_cast<double>(channels) / static_cast<double>(model.head_size);
  const bool has_factor = keys.has("rope.scaling.factor");
  const std::string type = keys.word("rope.scaling.type", has_factor ? "linear" : "none");
  RotaryScaling& scaling = model.rotary_scaling;
  if (keys.description().tables.contains(kLongDivisors)) {
    scaling = longrope(keys, model);
  } else if (type == "linear" || type == "yarn") {
    scaling = {.kind = type == "yarn" ? Kind::kYarn : Kind::kLinear,
               .factor = keys.number("rope.scaling.factor"),
               .original_positions = model.max_positions};
    if (type == "yarn")
      read_yarn(keys, model.latent.has_value(), scaling);
    else
      refuse_keys_of_yarn(keys);
    if (scaling.factor == 1 && !scaling.magnitude) scaling = {};
  } else if (type != "none") {
    keys.refuse("rope.scaling.type", "none, linear or yarn, or tables of longrope");
  } else {
    refuse_keys_of_yarn(keys);
    if (keys.description().tables.contains(kRopeDivisors))
      scaling = scaling_of_divisors(keys, model);
  }
}

void write_gguf_rotary(const ModelConfig& model, GgufDescription& description) {
  description.add("rope.dimension_count", GgufValue::u32(model.rotary_channels()));
  description.add("rope.freq_base", GgufValue::f32(model.rotary_base));
  const RotaryScaling& scaling = model.rotary_scaling;
  const auto original = [&] {
    description.add("rope.scaling.original_context_length",
                    GgufValue::u32(scaling.original_positions));
  };
  switch (scaling.kind) {
    case Kind::kNone:
    case Kind::kDynamic:  // in no file
      return;
    case Kind::kLinear:
      description.add("rope.scaling.type", GgufValue::string("linear"));
      description.add("rope.scaling.factor", GgufValue::f32(scaling.factor));
      return;
    case Kind::kYarn:
      description.add("rope.scaling.type", GgufValue::string("yarn"));
      description.add("rope.scaling.factor", GgufValue::f32(scaling.factor));
      original();
      if (scaling.fast != RotaryScaling{}.fast)
        description.add(kFast, GgufValue::f32(scaling.fast));
      if (scaling.slow != RotaryScaling{}.slow)
        description.add(kSlow, GgufValue::f32(scaling.slow));
      if (model.latent)
        description.add(kLatentYarn, GgufValue::f32(gguf_yarn_key(scaling.denominator)));
      else if (scaling.magnitude)
        description.add(kMagnitudeFactor,
                        GgufValue::f32(*scaling.magnitude / formula_magnitude(scaling)));
      return;
    case Kind::kLlama3:
      description.tables[kRopeDivisors] = divisors_of(model, scaling);
      description.entries.push_back({kOwnKind, GgufValue::string("llama3")});
      description.entries.push_back({kOwnFactor, GgufValue::f32(scaling.factor)});
      description.entries.push_back({kOwnLow, GgufValue::f32(scaling.low)});
      description.entries.push_back({kOwnHigh, GgufValue::f32(scaling.high)});
      description.entries.push_back({kOwnOriginal, GgufValue::u32(scaling.original_positions)});
      return;
    case Kind::kLongrope:
      description.add("rope.scaling.type", GgufValue::string("longrope"));
      original();
      description.add(kMagnitudeFactor, GgufValue::f32(rotary_magnitude(scaling)));
      const auto floats = [](const std::vector<double>& values) {
        return std::vector<float>(values.begin(), values.end());
      };
      description.tables[kShortDivisors] = floats(scaling.short_factors);
      description.tables[kLongDivisors] = floats(scaling.long_factors);
      return;
  }
}

void read_gguf_growth(const GgufKeys& keys, ModelConfig& model) {
  RotaryScaling& scaling = model.rotary_scaling;
  const double growth = keys.number(kGrowth, 0.0);
  if (growth != 0 && scaling.kind != Kind::kYarn) keys.refuse(kGrowth, "0, but of yarn");
  scaling.query_growth = growth;
  // In place of the formula: that of 1 over that of this.
  const double denominator = keys.number(kLatentYarn, 0.0);
  if (denominator == 0 || scaling.kind != Kind::kYarn) return;
  if (scaling.magnitude)
    keys.refuse(kLatentYarn, fmt::format("0, as there is {}", kMagnitudeFactor));
  scaling.numerator = 1;
  scaling.denominator = denominator;
  scaling.magnitude = rotary_magnitude(scaling);
  scaling.numerator = scaling.denominator = 0;
}

void write_gguf_growth(const ModelConfig& model, GgufDescription& description) {
  const double growth = model.rotary_scaling.query_growth;
  if (growth != 0) description.add(kGrowth, GgufValue::f32(growth));
}

void check_gguf_sections(const GgufKeys& keys, const ModelConfig& model) {
  const GgufValue* list = keys.find(kSections);
  const std::vector<std::int64_t> sections =
      list != nullptr ? list->integers() : std::vector<std::int64_t>{};
  std::int64_t sum = 0;
  bool valid = sections.size() == kPositionsOfToken + 1;  // the last of another kind of model
  for (const std::int64_t one : sections) {
    valid = valid && one >= 0 && one <= kLongestSection;
    if (valid) sum += one;
  }
  // As llama.cpp computes them, sections of `sum` pairs follow one another.
  const std::int64_t pairs = model.rotary_channels() / 2;
  valid = valid && sum > 0;
  for (std::int64_t pair = 0; valid && pair < std::min(pairs, sum); ++pair) {
    const std::int64_t position = pair % kPositionsOfToken;
    valid = pair < kPositionsOfToken * sections[static_cast<std::size_t>(position)];
  }
  if (!valid) {
    keys.refuse(kSections,
                "four numbers, by which each pair of rotated channels turns by time, "
                "height or width");
  }
}

void write_gguf_sections(const ModelConfig& model, GgufDescription& description) {
  const auto pairs = static_cast<std::int32_t>(model.rotary_channels() / 2);
  const std::int32_t sections[] = {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0};
  description.add(kSections, GgufValue::numbers(sections));
}

}  // namespace piton
