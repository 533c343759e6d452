#include "text/files/vocabulary_files.h"

#include <charconv>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "text/files/base64.h"
#include "text/files/json_reading.h"
#include "text/models/bpe_model.h"
#include "text/models/wordpiece_model.h"
#include "text/steps/megatron_bert.h"
#include "text/unicode/byte_level.h"

namespace piton {
namespace {

// Removes the first line from `text` and returns it without the newline.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::string hash_of(std::initializer_list<std::string_view> contents) {
  StreamHash hash;
  for (const std::string_view content : contents) {
    const std::string size = std::to_string(content.size()) + "\n";
    hash.add(std::as_bytes(std::span(size)));
    hash.add(std::as_bytes(std::span(content)));
  }
  return hash.hex();
}

AddedToken special_token(std::string_view content, std::int32_t id) {
  AddedToken token;
  token.content = content;
  token.id = id;
  token.special = true;
  return token;
}

TokenizerParts byte_bpe_parts(const BpeFacts& facts, const ByteBpeFamily& family,
                              const std::string& where) {
  TokenizerParts parts;
  if (family.nfc) parts.normalizer = make_normal_form(NormalForm::kNfc);
  auto table = std::make_shared<const CharacterTable>();
  if (family.add_prefix_space) {
    std::vector<std::unique_ptr<PreTokenizer>> steps;
    steps.push_back(make_prefix_space());
    steps.push_back(make_scan(family.scanner, table));
    parts.pre_tokenizer = make_sequence(std::move(steps));
  } else {
    parts.scanner = family.scanner;
  }
  parts.byte_level = true;
  parts.model = std::make_unique<BpeModel>(facts, where);
  parts.decoder = make_byte_level_decoder();
  parts.byte_level_decoder = true;
  parts.name = "byte-level BPE";
  const PieceVocabulary& vocabulary = parts.model->vocabulary();
  if (const auto id = vocabulary.id_of("<|endoftext|>")) {
    parts.added.push_back(special_token("<|endoftext|>", *id));
    parts.special.eod = parts.special.eos = parts.special.bos = *id;
  }
  return parts;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> read_merges_txt(std::string_view merges_txt,
                                                                 const std::string& where) {
  std::vector<std::pair<std::string, std::string>> merges;
  std::int64_t number = 0;
  for (std::string_view rest = merges_txt; !rest.empty();) {
    std::string_view line = take_line(rest);
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      throw Error(Fault::kData, "{}:{}: got \"{}\", wanted two pieces with one space between",
                  where, number,
                  line.substr(0, std::min<std::size_t>(60, valid_utf8_prefix(line))));
    }
    merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return merges;
}

TokenizerParts read_byte_bpe(std::string_view vocabulary_json, std::string_view merges_txt,
                             const ByteBpeFamily& family, const std::string& vocabulary_where,
                             const std::string& merges_where) {
  BpeFacts facts;
  const Json json = parse_json(vocabulary_json, vocabulary_where);
  if (!json.is_object()) {
    throw Error(Fault::kData, "{}: got {}, wanted an object of pieces and ids", vocabulary_where,
                json.type_name());
  }
  const std::int64_t largest = PieceVocabulary::largest_id(json.size());
  for (const auto& [piece, id] : json.items()) {
    const bool fits =
        id.is_number_unsigned() && id.get<std::uint64_t>() <= static_cast<std::uint64_t>(largest);
    if (!fits) {
      throw Error(Fault::kData, "{}: the id of \"{}\": wanted an integer 0 .. {}", vocabulary_where,
                  piece, largest);
    }
    facts.vocabulary.emplace_back(piece, id.get<std::int32_t>());
  }
  facts.merges = read_merges_txt(merges_txt, merges_where);
  facts.byte_level = true;
  facts.ignore_merges = family.ignore_merges;
  TokenizerParts parts = byte_bpe_parts(facts, family, merges_where);
  parts.content_hash = hash_of({vocabulary_json, merges_txt});
  return parts;
}

TokenizerParts read_word_piece(std::string_view vocabulary_txt, const WordPieceFamily& family,
                               const std::string& where) {
  WordPieceFacts facts;
  if (valid_utf8_prefix(vocabulary_txt) != vocabulary_txt.size()) {
    throw Error(Fault::kData, "{}: byte {} is not UTF-8; is this a vocab.txt?", where,
                valid_utf8_prefix(vocabulary_txt));
  }
  for (std::string_view rest = vocabulary_txt; !rest.empty();) {
    std::string_view line = take_line(rest);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (facts.vocabulary.size() > static_cast<std::size_t>(PieceVocabulary::kMaxId)) {
      throw Error(Fault::kData, "{}: more than {} lines; is this a vocab.txt?", where,
                  PieceVocabulary::kMaxId);
    }
    facts.vocabulary.emplace_back(line, static_cast<std::int32_t>(facts.vocabulary.size()));
  }
  facts.max_characters = family.megatron ? 200 : 100;
  TokenizerParts parts;
  auto model = std::make_unique<WordPieceModel>(facts, where);
  const auto id_of = [&model](std::string_view piece) { return model->vocabulary().id_of(piece); };
  parts.special.cls = id_of("[CLS]");
  parts.special.sep = id_of("[SEP]");
  parts.special.pad = id_of("[PAD]");
  parts.special.mask = id_of("[MASK]");
  parts.special.unk = id_of("[UNK]");
  for (const std::string_view name : {"[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"}) {
    if (const auto id = id_of(name)) parts.added.push_back(special_token(name, *id));
  }
  if (family.megatron) {
    auto next = static_cast<std::int32_t>(facts.vocabulary.size());
    const auto append = [&](const std::string& name) {
      const auto known = id_of(name);
      const std::int32_t id = known ? *known : next++;
      parts.added.push_back(special_token(name, id));
      return id;
    };
    parts.special.bos = append("[BOS]");
    parts.special.eos = append("[EOS]");
    parts.special.eod = parts.special.eos;
    for (std::int64_t i = 0; i < family.extra_ids; ++i) append(fmt::format("<extra_id_{}>", i));
    parts.pre_tokenizer = make_basic_tokenizer(family.lowercase);
  } else {
    BertRules rules;
    rules.lowercase = family.lowercase;
    rules.strip_accents = family.strip_accents && family.lowercase;
    rules.handle_chinese_chars = family.chinese_characters;
    parts.normalizer = make_bert_normalizer(rules);
    parts.scanner = {Scanner::Kind::kBert, 0};
    parts.special.eod = parts.special.sep;
    if (parts.special.cls) parts.prefix = {*parts.special.cls};
    if (parts.special.sep) parts.suffix = {*parts.special.sep};
  }
  parts.decoder = make_word_piece_decoder("##", !family.megatron);
  parts.model = std::move(model);
  parts.name = "WordPiece";
  const std::string kind =
      fmt::format("{} {} {} {} {}", family.lowercase, family.megatron, family.extra_ids,
                  family.strip_accents, family.chinese_characters);
  parts.content_hash = hash_of({vocabulary_txt, kind});
  return parts;
}

TokenizerParts read_tiktoken(std::string_view ranks, const Scanner& scanner,
                             const std::string& where) {
  std::vector<std::pair<std::string, std::int32_t>> tokens;  // bytes
  std::unordered_map<std::string_view, std::int32_t> rank_of;
  std::int64_t number = 0;
  for (std::string_view rest = ranks; !rest.empty();) {
    std::string_view line = take_line(rest);
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::size_t space = line.find(' ');
    const auto bytes = decode_base64(line.substr(0, space));
    std::int64_t rank = -1;
    if (space != std::string_view::npos) {
      const char* const end = line.data() + line.size();
      const auto [stop, error] = std::from_chars(line.data() + space + 1, end, rank);
      if (error != std::errc{} || stop != end) rank = -1;
    }
    // A rank is an id, and a line has at least six bytes.
    if (!bytes || bytes->empty() || rank < 0 ||
        rank > PieceVocabulary::largest_id(ranks.size() / 6)) {
      throw Error(Fault::kData,
                  "{}:{}: wanted base64, a space and a rank; is this a tiktoken file?", where,
                  number);
    }
    if (bytes->size() > PieceVocabulary::kMaxPieceBytes) {
      throw Error(Fault::kData,
                  "{}:{}: a token of {} bytes, wanted at most {}; is the file damaged?", where,
                  number, bytes->size(), PieceVocabulary::kMaxPieceBytes);
    }
    tokens.emplace_back(*bytes, static_cast<std::int32_t>(rank));
  }
  // Of two equal tokens the first is kept, as in the vocabulary.
  for (const auto& [bytes, rank] : tokens) rank_of.emplace(bytes, rank);

  // Two tokens whose bytes form another token are merged, with that token's rank.
  const ByteAlphabet alphabet;
  BpeFacts facts;
  for (const auto& [bytes, rank] : tokens) {
    facts.vocabulary.emplace_back(alphabet.spell(bytes), rank);
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      const std::string_view all = bytes;
      const auto left = rank_of.find(all.substr(0, cut));
      if (left == rank_of.end()) continue;
      const auto right = rank_of.find(all.substr(cut));
      if (right == rank_of.end()) continue;
      facts.rules.push_back(
          {left->second, right->second, rank_of.at(all), static_cast<std::uint32_t>(rank)});
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    if (!rank_of.contains(std::string_view(&c, 1))) {
      throw Error(Fault::kData, "{}: byte 0x{:02X} has no token: not every text could be encoded",
                  where, byte);
    }
  }
  facts.byte_level = true;
  facts.ignore_merges = true;
  ByteBpeFamily family;
  family.scanner = scanner;
  TokenizerParts parts = byte_bpe_parts(facts, family, where);
  parts.name = "tiktoken";
  const std::string kind = fmt::format("{} {}", static_cast<int>(scanner.kind), scanner.digits);
  parts.content_hash = hash_of({ranks, kind});
  return parts;
}

}  // namespace piton
