#include "text/files/byte_tokenizer.h"

#include <fmt/format.h>

#include <charconv>

#include "base/hash.h"
#include "base/json.h"
#include "text/unicode/byte_level.h"

namespace piton {
namespace {

constexpr std::string_view kEndName = "<|endoftext|>";

}  // namespace

ByteTokenizer::ByteTokenizer() {
  special_.eod = kEndOfDocument;
  special_.eos = kEndOfDocument;
  name_ = "byte";
  constexpr std::string_view kDescription = "piton byte tokenizer, 257 ids";
  StreamHash hash;
  hash.add(std::as_bytes(std::span(kDescription)));
  content_hash_ = hash.hex();
}

void ByteTokenizer::encode(std::string_view text, EncodeOptions options,
                           std::vector<std::int32_t>& out) const {
  while (true) {
    const std::size_t end =
        options.parse_special_tokens ? text.find(kEndName) : std::string_view::npos;
    const std::string_view plain = text.substr(0, end);
    for (const char byte : plain) out.push_back(static_cast<unsigned char>(byte));
    if (end == std::string_view::npos) return;
    out.push_back(kEndOfDocument);
    text.remove_prefix(end + kEndName.size());
  }
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> ids, DecodeOptions options) const {
  std::string text;
  text.reserve(ids.size());
  for (const std::int32_t id : ids) {
    if (id >= 0 && id < 256) {
      text.push_back(static_cast<char>(id));
    } else if (id == kEndOfDocument && !options.skip_special_tokens) {
      text += kEndName;
    }
  }
  return text;
}

std::string ByteTokenizer::piece(std::int32_t id) const {
  if (id == kEndOfDocument) return std::string(kEndName);
  if (id < 0 || id > 255) return "";
  return fmt::format("<0x{:02X}>", id);
}

std::optional<std::int32_t> ByteTokenizer::id_of(std::string_view piece) const {
  if (piece == kEndName) return kEndOfDocument;
  if (piece.size() != 6 || !piece.starts_with("<0x") || !piece.ends_with('>')) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(piece.data() + 3, piece.data() + 5, value, 16);
  if (error != std::errc{} || end != piece.data() + 5) return std::nullopt;
  if (this->piece(value) != piece) return std::nullopt;
  return value;
}

ByteTokenizerFiles byte_tokenizer_files() {
  using OrderedJson = nlohmann::ordered_json;
  const ByteAlphabet alphabet;
  OrderedJson vocabulary = OrderedJson::object();
  for (int byte = 0; byte < ByteTokenizer::kEndOfDocument; ++byte)
    vocabulary[alphabet.spell(std::string(1, static_cast<char>(byte)))] = byte;
  const OrderedJson bytes = {{"type", "ByteLevel"},
                             {"add_prefix_space", false},
                             {"trim_offsets", true},
                             {"use_regex", false}};
  const OrderedJson json = {{"version", "1.0"},
                            {"truncation", nullptr},
                            {"padding", nullptr},
                            {"added_tokens",
                             {{{"id", ByteTokenizer::kEndOfDocument},
                               {"content", kEndName},
                               {"single_word", false},
                               {"lstrip", false},
                               {"rstrip", false},
                               {"normalized", false},
                               {"special", true}}}},
                            {"normalizer", nullptr},
                            {"pre_tokenizer", bytes},
                            {"post_processor", nullptr},
                            {"decoder", bytes},
                            {"model",
                             {{"type", "BPE"},
                              {"dropout", nullptr},
                              {"unk_token", nullptr},
                              {"continuing_subword_prefix", nullptr},
                              {"end_of_word_suffix", nullptr},
                              {"fuse_unk", false},
                              {"byte_fallback", false},
                              {"vocab", vocabulary},
                              {"merges", OrderedJson::array()}}}};
  const OrderedJson config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                              {"clean_up_tokenization_spaces", false},
                              {"eos_token", kEndName}};
  return {json.dump(2) + "\n", config.dump(2) + "\n"};
}

}  // namespace piton
