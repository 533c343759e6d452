#include "model_files/chat_templates.h"

#include <algorithm>
#include <string_view>

#include "gguf/vocabulary/vocabulary.h"

namespace piton {
ModelChatTemplates chat_templates_of(const GgufHeader& header,
                                     const std::map<std::string, std::string>& texts,
                                     const std::string& where) {
  constexpr std::string_view kKey = kGgufTemplateKey;
  ModelChatTemplates found;
  found.files.where = where;
  const auto config = texts.find("tokenizer_config.json");
  found.files.special_tokens =
      special_tokens_of(config != texts.end() ? config->second : std::string("{}"));
  for (const GgufEntry& entry : header.entries) {
    if (!entry.key.starts_with(kKey) || entry.value.kind != GgufKind::kString) continue;
    const std::string_view rest = std::string_view(entry.key).substr(kKey.size());
    if (rest.empty()) found.files.templates.push_back({"default", entry.value.text, where});
    if (rest.size() > 1 && rest.front() == '.')
      found.files.templates.push_back({std::string(rest.substr(1)), entry.value.text, where});
  }
  std::ranges::sort(found.files.templates, {}, &ChatTemplateSource::name);
  return found;
}

}  // namespace piton
