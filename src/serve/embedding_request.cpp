#include "serve/embedding_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "serve/http/request_error.h"
#include "serve/http/request_fields.h"
#include "serve/text_request.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostTexts = 2048;

std::string base64_of(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) bits = bits << 8 | (k < count ? bytes[i + k] : 0U);
    for (std::size_t k = 0; k < 4; ++k)
      text += k <= count ? kLetters[bits >> (18 - 6 * k) & 63U] : '=';
  }
  return text;
}

// Before special ids are put around it: with these an empty text has tokens.
bool has_empty_text(const Json& input) {
  const auto is_empty = [](const Json& one) { return one == "" || one == Json::array(); };
  return is_empty(input) || (input.is_array() && std::ranges::any_of(input, is_empty));
}

}  // namespace

EmbeddingRequest read_embedding_request(const Json& body, const ServedModel& model) {
  RequestFields fields(body, "");
  EmbeddingRequest request;
  request.adapter = named_adapter(fields.text("model"), model);
  const Json* input = fields.value("input");
  if (input != nullptr && has_empty_text(*input))
    fields.fail("input", "texts or lists of ids that are not empty");
  request.texts = read_texts(fields, "input", model);
  const std::string format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64")
    fields.fail("encoding_format", "\"float\" or \"base64\"");
  request.base64 = format == "base64";
  if (fields.value("dimensions") != nullptr)
    fields.fail("dimensions", "nothing (the model has one length of vectors)");
  fields.ignore({"user"});
  fields.refuse_others();
  if (request.texts.size() > kMostTexts)
    fields.fail("input", fmt::format("at most {} texts", kMostTexts));
  for (const auto& text : request.texts) {
    if (text.empty()) fields.fail("input", "texts that have tokens");
    if (std::ssize(text) <= model.longest_sequence()) continue;
    throw RequestError(400, "input",
                       fmt::format("input: a text has {} tokens and the model takes {}; cut it",
                                   text.size(), model.longest_sequence()));
  }
  return request;
}

Json embedding_json(std::size_t index, std::span<const float> vector, bool base64) {
  double squares = 0;
  for (const float value : vector) squares += static_cast<double>(value) * value;
  const double length = squares > 0 ? std::sqrt(squares) : 1;
  Json values = Json::array();
  std::vector<std::uint8_t> bytes;
  for (const float value : vector) {
    const auto scaled = static_cast<float>(value / length);
    if (!base64) {
      values.push_back(scaled);
      continue;
    }
    const auto bits = std::bit_cast<std::uint32_t>(scaled);
    for (int shift = 0; shift < 32; shift += 8)
      bytes.push_back(static_cast<std::uint8_t>(bits >> shift & 255U));
  }
  return {{"object", "embedding"},
          {"index", index},
          {"embedding", base64 ? Json(base64_of(bytes)) : std::move(values)}};
}

}  // namespace piton
