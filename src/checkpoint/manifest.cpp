#include "checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/nesting.h"

namespace piton {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kFormat = "piton checkpoint";
constexpr std::string_view kHashKey = ",\n\"manifest_xxh3_128\": \"";
constexpr std::string_view kHashEnd = "\"\n}\n";
constexpr std::size_t kHashDigits = 32;
constexpr std::int64_t kMaxTextBytes = std::int64_t{1} << 30;
// Limit for iterations, samples and bytes: far above real values, and sums of a few still fit.
constexpr std::int64_t kMostCounted = std::int64_t{1} << 60;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Typed fields of a JSON object; errors name the file and the field.
class Fields {
 public:
  Fields(const OrderedJson& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) refuse("got no object");
  }

  std::int64_t count(const char* key) const {
    const OrderedJson& value = field(key);
    const std::optional<std::int64_t> number = whole_number(value);
    if (!number) refuse(fmt::format("\"{}\" is {}, wanted a whole number", key, shown(value)));
    return *number;
  }
  Shape shape(const char* key) const {
    const OrderedJson& sizes = list(key);
    if (sizes.size() > static_cast<std::size_t>(Shape::kMaxDims)) {
      refuse(fmt::format("\"{}\" has too many dims", key));
    }
    Shape shape;
    for (const OrderedJson& size : sizes) {
      const std::optional<std::int64_t> number = whole_number(size);
      if (!number) refuse(fmt::format("\"{}\" holds {}, no whole number", key, shown(size)));
      shape.append(*number);
    }
    return shape;
  }
  std::string hash(const char* key) const {
    const std::string digits = text(key);
    if (digits.size() != kHashDigits ||
        digits.find_first_not_of("0123456789abcdef") != std::string::npos) {
      refuse(fmt::format("\"{}\" is no hash of {} hex digits", key, kHashDigits));
    }
    return digits;
  }
  // The name of a file in the same folder: a manifest must not refer to other folders.
  std::string file_name(const char* key) const {
    const std::string name = text(key);
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos) {
      refuse(fmt::format("\"{}\" is no plain file name", key));
    }
    return name;
  }
  std::uint64_t unsigned_count(const char* key) const {
    const OrderedJson& value = field(key);
    if (!value.is_number_unsigned()) {
      refuse(fmt::format("\"{}\" is {}, wanted a whole number", key, shown(value)));
    }
    return value.get<std::uint64_t>();
  }
  std::int64_t signed_count(const char* key) const {
    const OrderedJson& value = field(key);
    if (!value.is_number_integer() ||
        (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{kMostCounted})) {
      refuse(fmt::format("\"{}\" is {}, wanted a whole number", key, shown(value)));
    }
    return value.get<std::int64_t>();
  }
  bool has(const char* key) const { return object_.contains(key); }
  double number(const char* key) const {
    const OrderedJson& value = field(key);
    if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
    if (!value.is_number()) refuse(fmt::format("\"{}\" is {}, wanted a number", key, shown(value)));
    return value.get<double>();
  }
  std::string text(const char* key) const {
    const OrderedJson& value = field(key);
    if (!value.is_string()) refuse(fmt::format("\"{}\" is {}, wanted text", key, shown(value)));
    return value.get<std::string>();
  }
  const OrderedJson& list(const char* key) const {
    const OrderedJson& value = field(key);
    if (!value.is_array()) refuse(fmt::format("\"{}\" is no list", key));
    return value;
  }
  const OrderedJson& field(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) refuse(fmt::format("\"{}\" is missing", key));
    return *found;
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(Fault::kData, "checkpoint: {}: {}", where_, what);
  }

 private:
  static std::string shown(const OrderedJson& value) { return value.dump().substr(0, 80); }

  // Nullopt unless it is a number from 0 to kMostCounted.
  static std::optional<std::int64_t> whole_number(const OrderedJson& value) {
    if (!value.is_number_unsigned()) return std::nullopt;
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(kMostCounted)) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }

  const OrderedJson& object_;
  std::string where_;
};

OrderedJson parse_json(std::string_view text, const std::string& where) {
  check_json_depth(text, where);
  OrderedJson json = read_json_or_discarded<OrderedJson>(text);
  if (json.is_discarded()) throw Error(Fault::kData, "checkpoint: {}: not valid JSON", where);
  return json;
}

OrderedJson shape_json(const Shape& shape) {
  OrderedJson list = OrderedJson::array();
  for (const std::int64_t size : shape.sizes()) list.push_back(size);
  return list;
}

std::string read_checked(const std::filesystem::path& folder, const Manifest& manifest,
                         const char* file) {
  const std::string text = read_regular_file(folder / file, kMaxTextBytes);
  const auto stored = std::find_if(manifest.files.begin(), manifest.files.end(),
                                   [&](const StoredFile& one) { return one.name == file; });
  const std::string where = (folder / file).string();
  if (stored == manifest.files.end()) {
    throw Error(Fault::kData, "checkpoint: {}: not listed in manifest.json", where);
  }
  if (stored->bytes != static_cast<std::int64_t>(text.size()) ||
      stored->hashed_bytes != stored->bytes || stored->hash != hash_bytes(bytes_of(text))) {
    throw Error(Fault::kData,
                "checkpoint: {}: changed since it was saved: its hash is {}, the "
                "manifest says {}",
                where, hash_bytes(bytes_of(text)), stored->hash);
  }
  return text;
}

StoredFile file_of(const OrderedJson& item, const std::string& where) {
  const Fields fields(item, where);
  StoredFile file{.name = fields.file_name("name"),
                  .bytes = fields.count("bytes"),
                  .hashed_bytes = fields.count("hashed_bytes"),
                  .hash = fields.hash("xxh3_128")};
  if (file.hashed_bytes > file.bytes) fields.refuse("\"hashed_bytes\" passes \"bytes\"");
  return file;
}

StoredTensor tensor_of(const OrderedJson& item, const std::string& where) {
  const Fields fields(item, where);
  StoredTensor stored;
  stored.tensor.name = fields.text("name");
  const auto refuse = [&](const std::string& what) {
    fields.refuse(fmt::format("tensor \"{}\": {}", stored.tensor.name, what));
  };
  const std::string kind = fields.text("kind");
  if (kind != "weight" && kind != "optimizer") refuse(fmt::format("\"kind\" is \"{}\"", kind));
  stored.tensor.kind = kind == "weight" ? TensorKind::kWeight : TensorKind::kOptimizer;
  const std::string type = fields.text("dtype");
  const std::optional<DType> dtype = dtype_of_safetensors(type);
  const bool fits = stored.tensor.kind == TensorKind::kWeight
                        ? dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kBF16 ||
                              dtype == DType::kF16
                        : dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
  if (!fits) {
    refuse(fmt::format("\"dtype\" is \"{}\", wanted {}", type,
                       kind == "weight" ? "F64, F32, BF16 or F16" : "F32, BF16 or F16"));
  }
  stored.tensor.dtype = *dtype;
  stored.tensor.shape = fields.shape("shape");
  stored.file = fields.file_name("file");
  stored.offset = fields.count("offset");
  stored.bytes = fields.count("bytes");
  stored.hash = fields.hash("xxh3_128");
  std::int64_t elements = 0;
  try {
    elements = stored.tensor.shape.elements();
  } catch (const Error& error) {
    refuse(error.what());
  }
  if (stored.bytes != elements * size_bytes(*dtype)) {
    refuse(fmt::format("{} {} is {} bytes, \"bytes\" says {}", type, to_string(stored.tensor.shape),
                       elements * size_bytes(*dtype), stored.bytes));
  }
  return stored;
}

// Checks that names are unique and that each tensor is inside of a listed file.
void check_consistency(const Manifest& manifest, const Fields& fields) {
  std::map<std::string, const StoredFile*> files;
  for (const StoredFile& file : manifest.files) {
    if (!files.try_emplace(file.name, &file).second) {
      fields.refuse(fmt::format("file \"{}\" is listed twice", file.name));
    }
  }
  std::set<std::string> names;
  for (const StoredTensor& one : manifest.tensors) {
    if (!names.insert(one.tensor.name).second) {
      fields.refuse(fmt::format("tensor \"{}\" is listed twice", one.tensor.name));
    }
    const auto file = files.find(one.file);
    if (file == files.end()) {
      fields.refuse(fmt::format("tensor \"{}\" is in \"{}\", which is not listed", one.tensor.name,
                                one.file));
    }
    if (one.offset < file->second->hashed_bytes || one.offset + one.bytes > file->second->bytes) {
      fields.refuse(fmt::format("tensor \"{}\": bytes {} to {} are not in the data of \"{}\"",
                                one.tensor.name, one.offset, one.offset + one.bytes, one.file));
    }
  }
}

}  // namespace

std::string iteration_folder(std::int64_t iteration) {
  return fmt::format("iter_{:07}", iteration);
}

std::optional<std::int64_t> iteration_of(const std::string& folder) {
  if (folder.size() < 12 || !folder.starts_with("iter_")) return std::nullopt;
  std::int64_t iteration = 0;
  const char* end = folder.data() + folder.size();
  const auto [stop, error] = std::from_chars(folder.data() + 5, end, iteration);
  if (error != std::errc() || stop != end || iteration < 0) return std::nullopt;
  return iteration;
}

std::string hash_bytes(std::span<const std::byte> bytes) {
  StreamHash hash;
  hash.add(bytes);
  return hash.hex();
}

std::string to_json(const TrainState& state) {
  OrderedJson facts = OrderedJson::object();
  for (const auto& [key, value] : state.facts) facts[key] = value;
  OrderedJson json = {
      {"iteration", state.iteration},
      {"consumed_samples", state.consumed_samples},
      {"consumed_tokens", state.consumed_tokens},
      {"optimizer_steps", state.optimizer_steps},
      {"skipped_steps", state.skipped_steps},
      {"seed", state.seed},
      {"learning_rate", state.learning_rate},
      {"lm_loss", state.lm_loss},
      {"loss_scale", state.loss_scale},
      {"good_updates", state.good_updates},
      {"hysteresis_left", state.hysteresis_left},
      {"facts", facts},
  };
  if (state.scheduled_samples) json["scheduled_samples"] = *state.scheduled_samples;
  if (!state.spike_history.empty()) json["spike_history"] = state.spike_history;
  return json.dump(1) + "\n";
}

TrainState parse_train_state(const std::string& text, const std::string& where) {
  const OrderedJson json = parse_json(text, where);
  const Fields fields(json, where);
  TrainState state;
  state.iteration = fields.count("iteration");
  state.consumed_samples = fields.count("consumed_samples");
  state.consumed_tokens = fields.count("consumed_tokens");
  state.optimizer_steps = fields.count("optimizer_steps");
  state.skipped_steps = fields.count("skipped_steps");
  state.seed = fields.unsigned_count("seed");
  if (fields.has("scheduled_samples")) state.scheduled_samples = fields.count("scheduled_samples");
  if (fields.has("loss_scale")) {  // earlier versions had none
    state.loss_scale = fields.number("loss_scale");
    state.good_updates = fields.count("good_updates");
    state.hysteresis_left = fields.signed_count("hysteresis_left");
    if (!(state.loss_scale > 0) || !std::isfinite(state.loss_scale)) {
      fields.refuse(fmt::format("\"loss_scale\" is {}, wanted a number above 0", state.loss_scale));
    }
  }
  if (fields.has("spike_history")) {
    for (const OrderedJson& value : fields.list("spike_history")) {
      if (!value.is_number()) fields.refuse("\"spike_history\" holds what is no number");
      state.spike_history.push_back(value.get<double>());
    }
    // The first counts the values that follow.
    if (!state.spike_history.empty() && !(state.spike_history[0] >= 0)) {
      fields.refuse("\"spike_history\" begins with no count");
    }
  }
  state.learning_rate = fields.number("learning_rate");
  state.lm_loss = fields.number("lm_loss");
  const OrderedJson& facts = fields.field("facts");
  if (!facts.is_object()) fields.refuse("\"facts\" is no object");
  for (const auto& [key, value] : facts.items()) {
    if (!value.is_string()) fields.refuse(fmt::format("\"facts\": \"{}\" is no text", key));
    state.facts[key] = value.get<std::string>();
  }
  return state;
}

bool Manifest::has_optimizer() const {
  return std::any_of(tensors.begin(), tensors.end(), [](const StoredTensor& one) {
    return one.tensor.kind == TensorKind::kOptimizer;
  });
}

std::string to_json(const Manifest& manifest) {
  // One line per tensor and file, because people read it.
  std::string text = fmt::format("{{\n\"format\": \"{}\",\n\"version\": {},\n\"iteration\": {},\n",
                                 kFormat, kCheckpointVersion, manifest.iteration);
  const auto list = [&](const char* key, const std::vector<OrderedJson>& items) {
    text += fmt::format("\"{}\": [", key);
    for (std::size_t i = 0; i < items.size(); ++i)
      text += (i == 0 ? "\n" : ",\n") + items[i].dump();
    text += "\n]";
  };
  std::vector<OrderedJson> files;
  for (const StoredFile& file : manifest.files) {
    files.push_back({{"name", file.name},
                     {"bytes", file.bytes},
                     {"hashed_bytes", file.hashed_bytes},
                     {"xxh3_128", file.hash}});
  }
  list("files", files);
  text += ",\n";
  std::vector<OrderedJson> tensors;
  for (const StoredTensor& one : manifest.tensors) {
    tensors.push_back({{"name", one.tensor.name},
                       {"kind", one.tensor.kind == TensorKind::kWeight ? "weight" : "optimizer"},
                       {"dtype", std::string(safetensors_name(one.tensor.dtype))},
                       {"shape", shape_json(one.tensor.shape)},
                       {"file", one.file},
                       {"offset", one.offset},
                       {"bytes", one.bytes},
                       {"xxh3_128", one.hash}});
  }
  list("tensors", tensors);
  const std::string hash = hash_bytes(bytes_of(text));
  return text + std::string(kHashKey) + hash + std::string(kHashEnd);
}

Manifest parse_manifest(const std::string& text, const std::string& where) {
  const std::size_t tail = kHashKey.size() + kHashDigits + kHashEnd.size();
  const auto torn = [&](const char* what) {
    throw Error(Fault::kData, "checkpoint: {}: {}: it was changed or cut since it was saved", where,
                what);
  };
  if (text.size() < tail) torn("no manifest of a checkpoint");
  const std::size_t body = text.size() - tail;
  const std::string_view end(text.data() + body, tail);
  if (!end.starts_with(kHashKey) || !end.ends_with(kHashEnd)) torn("its last line is not its hash");
  if (end.substr(kHashKey.size(), kHashDigits) != hash_bytes(bytes_of({text.data(), body}))) {
    torn("its hash is wrong");
  }
  const OrderedJson json = parse_json(text, where);
  const Fields fields(json, where);
  if (fields.text("format") != kFormat) {
    fields.refuse(
        fmt::format("\"format\" is \"{}\", wanted \"{}\"", fields.text("format"), kFormat));
  }
  if (fields.count("version") != kCheckpointVersion) {
    fields.refuse(fmt::format("\"version\" is {}, this program reads {}", fields.count("version"),
                              kCheckpointVersion));
  }
  Manifest manifest;
  manifest.iteration = fields.count("iteration");
  for (const OrderedJson& item : fields.list("files"))
    manifest.files.push_back(file_of(item, where));
  for (const OrderedJson& item : fields.list("tensors")) {
    manifest.tensors.push_back(tensor_of(item, where));
  }
  check_consistency(manifest, fields);
  return manifest;
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kManifestName;
  std::error_code unreadable;
  if (!std::filesystem::exists(file, unreadable)) {
    throw Error(Fault::kData,
                "checkpoint: {}: no {} in it: got no checkpoint, or one whose save never "
                "ended, wanted a folder such as DIR/{}",
                folder.string(), kManifestName, iteration_folder(1000));
  }
  return parse_manifest(read_regular_file(file, kMaxTextBytes), file.string());
}

TrainState read_state(const std::filesystem::path& folder, const Manifest& manifest) {
  const std::string where = (folder / kStateName).string();
  TrainState state = parse_train_state(read_checked(folder, manifest, kStateName), where);
  if (state.iteration != manifest.iteration) {
    throw Error(Fault::kData, "checkpoint: {}: \"iteration\" is {}, {} says {}", where,
                state.iteration, kManifestName, manifest.iteration);
  }
  return state;
}

std::string read_config(const std::filesystem::path& folder, const Manifest& manifest) {
  return read_checked(folder, manifest, kConfigName);
}

std::string hash_of(const Manifest& manifest, TensorKind kind) {
  std::map<std::string, const StoredTensor*> by_name;
  for (const StoredTensor& one : manifest.tensors) {
    if (one.tensor.kind == kind) by_name[one.tensor.name] = &one;
  }
  StreamHash hash;
  for (const auto& [tensor_name, one] : by_name) {
    const std::string line =
        fmt::format("{} {} {} {}\n", tensor_name, safetensors_name(one->tensor.dtype),
                    to_string(one->tensor.shape), one->hash);
    hash.add(bytes_of(line));
  }
  return hash.hex();
}

}  // namespace piton
