#include "huggingface/files/origin.h"

#include "base/json.h"
#include "huggingface/files/config_file.h"

namespace piton {

using Json = nlohmann::ordered_json;

Json origin_of_family(const std::string& model_type) {
  Json origin;
  if (!model_type.empty()) origin["model_type"] = model_type;
  return origin;
}

Json read_origin(const std::map<std::string, std::string>& facts, const std::string& where) {
  const auto found = facts.find(kOriginFact);
  if (found == facts.end()) return {};
  const HfConfig config(found->second, where + ": " + kOriginFact);
  static_cast<void>(config.word("model_type"));
  return read_json<Json>(config.text());
}

void keep_origin(const Json& origin, std::map<std::string, std::string>& facts) {
  if (!origin.is_null()) facts[kOriginFact] = origin.dump();
}

}  // namespace piton
