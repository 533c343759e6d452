// Changed checkpoints whose hashes are computed again, so that only the reader's own checks can
// detect the change.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/files.h"
#include "base/hash.h"
#include "base/json.h"
#include "checkpoint/manifest.h"
#include "drills/drill.h"

namespace piton::drill {

using Json = nlohmann::ordered_json;

inline std::string hash_of_text(std::string_view text) {
  return hash_bytes(std::as_bytes(std::span(text.data(), text.size())));
}

inline std::string repeated(std::string_view text, int count) {
  std::string result;
  result.reserve(text.size() * static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

// One checkpoint folder in memory, to be changed and written elsewhere.
struct CheckpointFiles {
  Json manifest;
  std::map<std::string, std::string> files;  // all but the manifest

  explicit CheckpointFiles(const std::filesystem::path& folder) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      const std::string text = read_text_file(entry.path());
      if (name == kManifestName) {
        manifest = Json::parse(text);
      } else {
        files[name] = text;
      }
    }
    manifest.erase("manifest_xxh3_128");
  }

  Json& entry_of(const std::string& file) {
    for (Json& one : manifest["files"]) {
      if (one["name"] == file) return one;
    }
    throw std::runtime_error("no " + file);
  }

  // The header of a tensor file, and its replacement with all offsets and hashes as they must be.
  Json header(const std::string& file) const {
    const std::string& bytes = files.at(file);
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    return Json::parse(bytes.substr(8, length));
  }
  void set_header(const std::string& file, const std::string& text) {
    std::string& bytes = files.at(file);
    std::uint64_t old = 0;
    std::memcpy(&old, bytes.data(), 8);
    const std::string data = bytes.substr(8 + old);
    std::string whole = text;
    whole.resize((8 + whole.size() + 63) / 64 * 64 - 8, ' ');
    const std::uint64_t length = whole.size();
    std::string head(8, '\0');
    std::memcpy(head.data(), &length, 8);
    bytes = head + whole + data;
    const auto moved = static_cast<std::int64_t>(length) - static_cast<std::int64_t>(old);
    Json& entry = entry_of(file);
    entry["bytes"] = bytes.size();
    entry["hashed_bytes"] = 8 + length;
    entry["xxh3_128"] = hash_of_text(std::string_view(bytes).substr(0, 8 + length));
    for (Json& tensor : manifest["tensors"]) {
      if (tensor["file"] == file) tensor["offset"] = tensor["offset"].get<std::int64_t>() + moved;
    }
  }
  void set_text(const std::string& file, const std::string& text) {
    files[file] = text;
    Json& entry = entry_of(file);
    entry["bytes"] = text.size();
    entry["hashed_bytes"] = text.size();
    entry["xxh3_128"] = hash_of_text(text);
  }

  // The manifest in the writer's form, with the hash of what it is now. `body`: instead of it.
  std::string manifest_text(std::string body = "") const {
    if (body.empty()) body = manifest.dump();
    body.pop_back();  // "}"
    return body + ",\n\"manifest_xxh3_128\": \"" + hash_of_text(body) + "\"\n}\n";
  }

  void write(const std::filesystem::path& folder, const std::string& manifest_as) const {
    std::filesystem::create_directories(folder);
    for (const auto& [name, text] : files) std::ofstream(folder / name, std::ios::binary) << text;
    std::ofstream(folder / kManifestName, std::ios::binary) << manifest_as;
  }
};

// What a change gave.
struct Mutant {
  std::string what;
  bool may_load = false;  // also a checkpoint that is whole: one number of its state says otherwise
  bool unread_by_weights = false;  // the hash of bytes that a load of weights alone does not read
};

namespace mutation {

inline constexpr std::int64_t kHuge[] = {std::int64_t{1} << 31, std::int64_t{1} << 32,
                                         std::int64_t{1} << 56, std::int64_t{1} << 60,
                                         std::int64_t{1} << 62, INT64_MAX};

inline Json odd_value(Draw& draw) {
  switch (draw.below(9)) {
    case 0:
      return -1 - draw.below(1 << 20);
    case 1:
      return UINT64_MAX - static_cast<std::uint64_t>(draw.below(1000));
    case 2:
      return 0.5;
    case 3:
      return nullptr;
    case 4:
      return "text";
    case 5:
      return Json::array({1, 2});
    case 6:
      return Json::object({{"a", 1}});
    case 7:
      return true;
    default:
      return 1e300;
  }
}

inline Json& any(Json& list, Draw& draw) {
  return list[static_cast<std::size_t>(draw.below(static_cast<std::int64_t>(list.size())))];
}

inline std::string tensor_file(const CheckpointFiles& checkpoint, Draw& draw) {
  std::vector<std::string> names;
  for (const auto& [name, text] : checkpoint.files) {
    if (name.ends_with(".safetensors")) names.push_back(name);
  }
  return names[static_cast<std::size_t>(draw.below(static_cast<std::int64_t>(names.size())))];
}

// A name twice: as another kind, at any offset, in any file.
inline Mutant repeat_tensor(CheckpointFiles& checkpoint, Draw& draw) {
  Json copy = any(checkpoint.manifest["tensors"], draw);
  if (draw.below(2) == 0) copy["kind"] = copy["kind"] == "weight" ? "optimizer" : "weight";
  if (draw.below(2) == 0) copy["offset"] = draw.below(INT64_MAX);
  if (draw.below(3) == 0) copy["bytes"] = draw.below(INT64_MAX);
  if (draw.below(2) == 0) {
    checkpoint.manifest["tensors"].push_back(copy);
  } else {
    checkpoint.manifest["tensors"].insert(checkpoint.manifest["tensors"].begin(), copy);
  }
  return {"a tensor's name twice"};
}

inline Mutant change_tensor(CheckpointFiles& checkpoint, Draw& draw) {
  Json& tensor = any(checkpoint.manifest["tensors"], draw);
  switch (draw.below(8)) {
    case 0:
      tensor["kind"] = tensor["kind"] == "weight" ? "optimizer" : "weight";
      return {"the other kind"};
    case 1: {
      constexpr const char* kTypes[] = {"I32", "I64", "U8", "BOOL", "F8_E4M3", "F64", "X", ""};
      tensor["dtype"] = kTypes[draw.below(8)];
      return {"dtype " + tensor["dtype"].get<std::string>()};
    }
    case 2:
      tensor["shape"] = Json::array({kHuge[draw.below(6)], kHuge[draw.below(6)]});
      return {"a shape whose product overflows"};
    case 3: {
      // 2^32 x 2^32 x the old size: the same number of bytes modulo 2^64.
      tensor["shape"].push_back(std::int64_t{1} << 32);
      tensor["shape"].push_back(std::int64_t{1} << 32);
      return {"a shape whose product wraps"};
    }
    case 4:
      tensor["offset"] = tensor["offset"].get<std::int64_t>() + (draw.below(2) == 0 ? 4 : -4);
      return {"an offset next to its own"};
    case 5:
      tensor["offset"] = kHuge[draw.below(6)];
      return {"a huge offset"};
    case 6: {
      constexpr const char* kNames[] = {"../manifest.json", "/dev/zero", ".",          "..", "",
                                        "state.json",       "absent",    "config.toml"};
      tensor["file"] = kNames[draw.below(8)];
      return {"in file " + tensor["file"].get<std::string>()};
    }
    default:
      tensor["bytes"] = draw.below(2) == 0 ? Json(kHuge[draw.below(6)]) : Json(0);
      return {"bytes"};
  }
}

inline Mutant change_list(CheckpointFiles& checkpoint, Draw& draw) {
  Json& manifest = checkpoint.manifest;
  Json& tensors = manifest["tensors"];
  Json& files = manifest["files"];
  const auto index = [&](const Json& list) {
    return static_cast<std::size_t>(draw.below(static_cast<std::int64_t>(list.size())));
  };
  switch (draw.below(7)) {
    case 0:
      tensors.erase(index(tensors));
      return {"a tensor is missing"};
    case 1:
      any(tensors, draw)["name"] = draw.below(2) == 0 ? "other" : "";
      return {"a tensor of another name"};
    case 2:
      files.erase(index(files));
      return {"a file is not listed"};
    case 3:
      files.push_back(any(files, draw));
      return {"a file is listed twice"};
    case 4:
      any(files, draw)["hashed_bytes"] = draw.below(300);
      return {"another part of a file is hashed"};
    case 5:
      any(files, draw)["bytes"] = draw.below(2) == 0 ? kHuge[draw.below(6)] : draw.below(1000);
      return {"bytes of a file"};
    default: {
      Json& one = any(draw.below(2) == 0 ? files : tensors, draw);
      one["xxh3_128"] = draw.below(2) == 0 ? std::string("0") : std::string(32, 'f');
      return {.what = "a hash",
              .unread_by_weights = one["xxh3_128"] != "0" && one.value("kind", "") == "optimizer"};
    }
  }
}

// Any value of the manifest, of another type or out of its range.
inline Mutant change_value(CheckpointFiles& checkpoint, Draw& draw) {
  Json& manifest = checkpoint.manifest;
  const Json odd = odd_value(draw);
  switch (draw.below(3)) {
    case 0: {
      constexpr const char* kKeys[] = {"format", "version", "iteration", "files", "tensors"};
      const char* key = kKeys[draw.below(5)];
      manifest[key] = odd;
      return {std::string(key) + " is " + odd.dump()};
    }
    case 1: {
      constexpr const char* kKeys[] = {"name", "kind",   "dtype", "shape",
                                       "file", "offset", "bytes", "xxh3_128"};
      const char* key = kKeys[draw.below(8)];
      Json& tensor = any(manifest["tensors"], draw);
      if (draw.below(3) == 0) {
        tensor.erase(key);
      } else {
        // A name is any text, so that one only misses.
        tensor[key] = odd;
      }
      return {std::string(key) + " of a tensor is " + odd.dump()};
    }
    default: {
      constexpr const char* kKeys[] = {"name", "bytes", "hashed_bytes", "xxh3_128"};
      const char* key = kKeys[draw.below(4)];
      Json& file = any(manifest["files"], draw);
      if (draw.below(3) == 0) {
        file.erase(key);
      } else {
        file[key] = odd;
      }
      return {std::string(key) + " of a file is " + odd.dump()};
    }
  }
}

inline Mutant change_header(CheckpointFiles& checkpoint, Draw& draw) {
  const std::string file = tensor_file(checkpoint, draw);
  Json header = checkpoint.header(file);
  std::vector<std::string> names;
  for (const auto& [name, value] : header.items()) {
    if (name != "__metadata__") names.push_back(name);
  }
  const std::string name =
      names[static_cast<std::size_t>(draw.below(static_cast<std::int64_t>(names.size())))];
  Json& entry = header[name];
  const std::string what = "in the header of " + file + ": ";
  switch (draw.below(7)) {
    case 0:
      entry["shape"] = Json::array({kHuge[draw.below(6)], kHuge[draw.below(6)]});
      checkpoint.set_header(file, header.dump());
      return {what + "a shape"};
    case 1:
      entry["dtype"] = draw.below(2) == 0 ? "I32" : "F8_E5M2";
      checkpoint.set_header(file, header.dump());
      return {what + "a dtype"};
    case 2:
      entry["data_offsets"] = Json::array({draw.below(INT64_MAX), draw.below(INT64_MAX)});
      checkpoint.set_header(file, header.dump());
      return {what + "offsets"};
    case 3:
      // No bytes: only the list shows that it is not in the manifest.
      header["unlisted"] = {{"dtype", "F32"}, {"shape", {0}}, {"data_offsets", {0, 0}}};
      checkpoint.set_header(file, header.dump());
      return {what + "a tensor that the manifest has not"};
    case 4: {
      std::string text = header.dump();
      text.insert(1, "\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},");
      checkpoint.set_header(file, text);
      return {what + "a name twice"};
    }
    case 5: {
      std::string text = header.dump();
      text.insert(1, "\"deep\":" + repeated("[", 100'000) + repeated("]", 100'000) + ",");
      checkpoint.set_header(file, text);
      return {what + "a deep nest"};
    }
    default:
      entry[draw.below(2) == 0 ? "shape" : "data_offsets"] = odd_value(draw);
      checkpoint.set_header(file, header.dump());
      return {what + "a value"};
  }
}

inline bool state_may_lack(std::string_view key) {
  return key == "loss_scale" || key == "scheduled_samples";
}

inline Mutant change_state(CheckpointFiles& checkpoint, Draw& draw) {
  Json state = Json::parse(checkpoint.files.at("state.json"));
  constexpr const char* kKeys[] = {
      "iteration",    "consumed_samples", "consumed_tokens",  "optimizer_steps", "skipped_steps",
      "seed",         "learning_rate",    "lm_loss",          "facts",           "loss_scale",
      "good_updates", "hysteresis_left",  "scheduled_samples"};
  const char* key = kKeys[draw.below(std::size(kKeys))];
  const std::string what = std::string("state.json: ") + key;
  switch (draw.below(4)) {
    case 0:
      state.erase(key);
      checkpoint.set_text("state.json", state.dump());
      // Earlier versions had no such fields.
      return {what + " is missing", /*may_load=*/state_may_lack(key)};
    case 1: {
      std::string text = state.dump();
      text.insert(1,
                  "\"deep\":" + repeated("{\"a\":", 100'000) + "1" + repeated("}", 100'000) + ",");
      checkpoint.set_text("state.json", text);
      return {"state.json: a deep nest"};
    }
    case 2:
      state[key] = kHuge[2 + draw.below(4)];
      checkpoint.set_text("state.json", state.dump());
      return {what + " is huge", /*may_load=*/true};
    default:
      state[key] = odd_value(draw);
      checkpoint.set_text("state.json", state.dump());
      return {what + " is " + state[key].dump(), /*may_load=*/true};
  }
}

}  // namespace mutation

// One change of a kind that is drawn; the folder is written whole.
inline Mutant write_mutant(CheckpointFiles checkpoint, const std::filesystem::path& folder,
                           Draw& draw) {
  std::string manifest_body;
  Mutant mutant;
  switch (draw.below(8)) {
    case 0:
      mutant = mutation::repeat_tensor(checkpoint, draw);
      break;
    case 1:
    case 2:
      mutant = mutation::change_tensor(checkpoint, draw);
      break;
    case 3:
      mutant = mutation::change_list(checkpoint, draw);
      break;
    case 4:
      mutant = mutation::change_value(checkpoint, draw);
      break;
    case 5:
      mutant = mutation::change_header(checkpoint, draw);
      break;
    case 6:
      mutant = mutation::change_state(checkpoint, draw);
      break;
    default: {
      const char* open = draw.below(2) == 0 ? "[" : "{\"a\":";
      manifest_body = checkpoint.manifest.dump();
      manifest_body.insert(1, "\"deep\":" + repeated(open, 100'000) + "1" +
                                  repeated(*open == '[' ? "]" : "}", 100'000) + ",");
      mutant = {"manifest.json: a deep nest"};
    }
  }
  checkpoint.write(folder, checkpoint.manifest_text(manifest_body));
  return mutant;
}

}  // namespace piton::drill
