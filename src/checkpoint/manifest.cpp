#include "checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "piton checkpoint";
constexpr std::string_view kHashKey = ",\n\"manifest_xxh3_128\": \"";
constexpr std::string_view kHashEnd = "\"\n}\n";
constexpr std::size_t kHashDigits = 32;
constexpr std::int64_t kMaxTextBytes = std::int64_t{1} << 30;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Typed fields of a JSON object; whatever is wrong names the file and the field.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) refuse("got no object");
  }

  std::int64_t count(const char* key) const {
    const Json& value = field(key);
    // Signed or not by the reader's whim; negative or too large is refused.
    if (!value.is_number_integer() ||
        (value.is_number_unsigned() &&
         value.get<std::uint64_t>() >
             static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) ||
        value.get<std::int64_t>() < 0) {
      refuse(fmt::format("\"{}\" is {}, wanted a whole number", key, value.dump()));
    }
    return value.get<std::int64_t>();
  }
  std::uint64_t unsigned_count(const char* key) const {
    const Json& value = field(key);
    if (!value.is_number_unsigned()) {
      refuse(fmt::format("\"{}\" is {}, wanted a whole number", key, value.dump()));
    }
    return value.get<std::uint64_t>();
  }
  double number(const char* key) const {
    const Json& value = field(key);
    if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
    if (!value.is_number()) refuse(fmt::format("\"{}\" is {}, wanted a number", key, value.dump()));
    return value.get<double>();
  }
  std::string text(const char* key) const {
    const Json& value = field(key);
    if (!value.is_string()) refuse(fmt::format("\"{}\" is {}, wanted text", key, value.dump()));
    return value.get<std::string>();
  }
  const Json& list(const char* key) const {
    const Json& value = field(key);
    if (!value.is_array()) refuse(fmt::format("\"{}\" is no list", key));
    return value;
  }
  const Json& field(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) refuse(fmt::format("\"{}\" is missing", key));
    return *found;
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(Fault::kData, "checkpoint: {}: {}", where_, what);
  }

 private:
  const Json& object_;
  std::string where_;
};

Json parse_json(std::string_view text, const std::string& where) {
  Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  if (json.is_discarded()) throw Error(Fault::kData, "checkpoint: {}: not valid JSON", where);
  return json;
}

Json shape_json(const Shape& shape) {
  Json list = Json::array();
  for (const std::int64_t size : shape.sizes()) list.push_back(size);
  return list;
}

std::string read_checked(const std::filesystem::path& folder, const Manifest& manifest,
                         const char* file) {
  const std::string text = read_text_file(folder / file, kMaxTextBytes);
  const auto stored = std::find_if(manifest.files.begin(), manifest.files.end(),
                                   [&](const StoredFile& one) { return one.name == file; });
  const std::string where = (folder / file).string();
  if (stored == manifest.files.end()) {
    throw Error(Fault::kData, "checkpoint: {}: not listed in manifest.json", where);
  }
  if (stored->bytes != static_cast<std::int64_t>(text.size()) ||
      stored->hash != hash_bytes(bytes_of(text))) {
    throw Error(Fault::kData,
                "checkpoint: {}: changed since it was saved: its hash is {}, the "
                "manifest says {}",
                where, hash_bytes(bytes_of(text)), stored->hash);
  }
  return text;
}

// A plain name: a manifest must not lead out of its folder.
bool is_plain(const std::string& file) {
  return !file.empty() && file != "." && file != ".." && file.find('/') == std::string::npos &&
         file.find('\0') == std::string::npos;
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
  Json facts = Json::object();
  for (const auto& [key, value] : state.facts) facts[key] = value;
  const Json json = {
      {"iteration", state.iteration},
      {"consumed_samples", state.consumed_samples},
      {"consumed_tokens", state.consumed_tokens},
      {"optimizer_steps", state.optimizer_steps},
      {"skipped_steps", state.skipped_steps},
      {"seed", state.seed},
      {"learning_rate", state.learning_rate},
      {"lm_loss", state.lm_loss},
      {"facts", facts},
  };
  return json.dump(1) + "\n";
}

TrainState parse_train_state(const std::string& text, const std::string& where) {
  const Json json = parse_json(text, where);
  const Fields fields(json, where);
  TrainState state;
  state.iteration = fields.count("iteration");
  state.consumed_samples = fields.count("consumed_samples");
  state.consumed_tokens = fields.count("consumed_tokens");
  state.optimizer_steps = fields.count("optimizer_steps");
  state.skipped_steps = fields.count("skipped_steps");
  state.seed = fields.unsigned_count("seed");
  state.learning_rate = fields.number("learning_rate");
  state.lm_loss = fields.number("lm_loss");
  const Json& facts = fields.field("facts");
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
  // One line a tensor and a file: people look into it.
  std::string text = fmt::format("{{\n\"format\": \"{}\",\n\"version\": {},\n\"iteration\": {},\n",
                                 kFormat, kCheckpointVersion, manifest.iteration);
  const auto list = [&](const char* key, const std::vector<Json>& items) {
    text += fmt::format("\"{}\": [", key);
    for (std::size_t i = 0; i < items.size(); ++i)
      text += (i == 0 ? "\n" : ",\n") + items[i].dump();
    text += "\n]";
  };
  std::vector<Json> files;
  for (const StoredFile& file : manifest.files) {
    files.push_back({{"name", file.name},
                     {"bytes", file.bytes},
                     {"hashed_bytes", file.hashed_bytes},
                     {"xxh3_128", file.hash}});
  }
  list("files", files);
  text += ",\n";
  std::vector<Json> tensors;
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
  const Json json = parse_json(text, where);
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
  for (const Json& item : fields.list("files")) {
    const Fields file(item, where);
    manifest.files.push_back({file.text("name"), file.count("bytes"), file.count("hashed_bytes"),
                              file.text("xxh3_128")});
    if (!is_plain(manifest.files.back().name)) file.refuse("\"name\" is no plain file name");
    if (manifest.files.back().hashed_bytes > manifest.files.back().bytes) {
      file.refuse("\"hashed_bytes\" passes \"bytes\"");
    }
  }
  for (const Json& item : fields.list("tensors")) {
    const Fields one(item, where);
    StoredTensor stored;
    stored.tensor.name = one.text("name");
    const std::string kind = one.text("kind");
    if (kind != "weight" && kind != "optimizer")
      one.refuse(fmt::format("\"kind\" is \"{}\"", kind));
    stored.tensor.kind = kind == "weight" ? TensorKind::kWeight : TensorKind::kOptimizer;
    const std::optional<DType> dtype = dtype_of_safetensors(one.text("dtype"));
    if (!dtype) one.refuse(fmt::format("\"dtype\" is \"{}\"", one.text("dtype")));
    stored.tensor.dtype = *dtype;
    const Json& shape = one.list("shape");
    if (shape.size() > static_cast<std::size_t>(Shape::kMaxDims))
      one.refuse("\"shape\" has too many dims");
    for (const Json& size : shape) {
      if (!size.is_number_unsigned()) one.refuse("\"shape\" holds no whole number");
      stored.tensor.shape.append(size.get<std::int64_t>());
    }
    stored.file = one.text("file");
    if (!is_plain(stored.file)) one.refuse("\"file\" is no plain file name");
    stored.offset = one.count("offset");
    stored.bytes = one.count("bytes");
    stored.hash = one.text("xxh3_128");
    manifest.tensors.push_back(std::move(stored));
  }
  return manifest;
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kManifestName;
  if (!std::filesystem::exists(file)) {
    throw Error(Fault::kData,
                "checkpoint: {}: no {} in it: got no checkpoint, or one whose save never "
                "ended, wanted a folder such as DIR/{}",
                folder.string(), kManifestName, iteration_folder(1000));
  }
  return parse_manifest(read_text_file(file, kMaxTextBytes), file.string());
}

TrainState read_state(const std::filesystem::path& folder, const Manifest& manifest) {
  return parse_train_state(read_checked(folder, manifest, kStateName),
                           (folder / kStateName).string());
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
