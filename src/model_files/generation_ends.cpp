#include "model_files/generation_ends.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"
#include "gguf/gguf_source.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSettings = "generation_config.json";

std::vector<std::int32_t> ends_in(const nlohmann::ordered_json& said, const std::string& where) {
  const auto found = said.find("eos_token_id");
  if (found == said.end() || found->is_null()) return {};
  const auto all = found->is_array() ? *found : nlohmann::ordered_json::array({*found});
  std::vector<std::int32_t> ends;
  for (const nlohmann::ordered_json& id : all) {
    constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
        id.get<std::int64_t>() > kLargest) {
      throw Error(Fault::kData, "{}: eos_token_id is {}, wanted an id or a list of ids", where,
                  found->dump());
    }
    ends.push_back(id.get<std::int32_t>());
  }
  return ends;
}

// The ends of a turn and of a message of a GGUF file. That of a text is its tokenizer's.
std::vector<std::int32_t> ends_in(const GgufHeader& header) {
  std::vector<std::int32_t> ends;
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    const GgufValue* const id = header.find(key);
    const bool fits = id != nullptr && id->is_integer() && id->integer() >= 0 &&
                      id->integer() <= std::numeric_limits<std::int32_t>::max();
    if (fits) ends.push_back(static_cast<std::int32_t>(id->integer()));
  }
  return ends;
}

}  // namespace

std::vector<std::int32_t> generation_ends(const fs::path& folder) {
  if (folder.empty()) return {};
  for (const fs::path& path : {folder / kSettings, folder / "config.json"}) {
    if (!fs::is_regular_file(path)) continue;
    const auto said = read_json_or_discarded<nlohmann::ordered_json>(read_text_file(path));
    // Next to a tokenizer there may be a config.json of anything.
    if (!said.is_object() && path.filename() != kSettings) continue;
    if (!said.is_object())
      throw Error(Fault::kData, "{}: not a JSON object, wanted settings", path.string());
    std::vector<std::int32_t> ends = ends_in(said, path.string());
    if (!ends.empty()) return ends;
  }
  return {};
}

std::vector<std::int32_t> generation_ends(const OpenedModel& model) {
  if (model.gguf != nullptr) return ends_in(model.gguf->file().header());
  std::vector<std::int32_t> ends = generation_ends(model.tokenizer.folder);
  if (!ends.empty() || model.origin.is_null() || model.has_other_tokenizer()) return ends;
  return ends_in(model.origin, model.source->where());
}

std::vector<std::int32_t> text_ends(const std::vector<std::int32_t>& stated,
                                    const Tokenizer* tokenizer) {
  std::vector<std::int32_t> ends;
  const auto add = [&](std::optional<std::int32_t> id) {
    if (id && std::ranges::find(ends, *id) == ends.end()) ends.push_back(*id);
  };
  for (const std::int32_t id : stated) add(id);
  if (tokenizer == nullptr) return ends;
  add(tokenizer->special().eos);
  add(tokenizer->special().eod);
  return ends;
}

}  // namespace piton
