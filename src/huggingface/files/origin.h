// What a checkpoint keeps of the Hugging Face folder that its weights come from: then a folder that
// is made of it is of the same family and has the same keys.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace piton {

// Name of the fact (TrainState::facts). Its text is a JSON object, "model_type" and the other keys
// of that folder's config.json. Weights of other formats have only the family: {"model_type": "T"}.
// Checkpoints of earlier versions and of models that were trained from the start have none.
inline constexpr const char* kOriginFact = "huggingface.config";

// The keys for a family alone; null for "".
nlohmann::ordered_json origin_of_family(const std::string& model_type);

// From facts, and to them; null: none. Throws Error(kData), beginning with `where`, for a text that
// is no JSON object with a "model_type".
nlohmann::ordered_json read_origin(const std::map<std::string, std::string>& facts,
                                   const std::string& where);
void keep_origin(const nlohmann::ordered_json& origin, std::map<std::string, std::string>& facts);

}  // namespace piton
