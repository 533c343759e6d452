#include "text/files/tokenizer_json.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "text/models/bpe_model.h"
#include "text/models/unigram_model.h"
#include "text/models/wordpiece_model.h"

namespace piton {
namespace {

std::int32_t read_id(std::int64_t id, const std::string& what, const std::string& where) {
  if (id < 0 || id > PieceVocabulary::kMaxId) {
    throw Error(Fault::kData, "{}: the id of \"{}\" is out of range: got {}, wanted 0 .. {}", where,
                what, id, PieceVocabulary::kMaxId);
  }
  return static_cast<std::int32_t>(id);
}

std::vector<std::pair<std::string, std::int32_t>> read_vocabulary(const Json& model,
                                                                  const std::string& where) {
  std::vector<std::pair<std::string, std::int32_t>> entries;
  const Json& object = need_object(model, "vocab", where);
  entries.reserve(object.size());
  for (const auto& [piece, id] : object.items()) {
    if (!id.is_number_integer() ||
        (id.is_number_unsigned() && id.get<std::uint64_t>() >> 32 != 0)) {
      throw Error(Fault::kData, "{}: vocabulary: the id of \"{}\": got {}, wanted an integer",
                  where, piece, id.dump().substr(0, 40));
    }
    entries.emplace_back(piece, read_id(id.get<std::int64_t>(), piece, where));
  }
  return entries;
}

std::optional<std::string> optional_text(const Json& object, const char* key,
                                         const std::string& where) {
  if (field(object, key, where).is_null()) return std::nullopt;
  return need_text(object, key, where);
}

BpeFacts read_bpe(const Json& model, const std::string& where) {
  const Json& dropout = field(model, "dropout", where);
  if (dropout.is_number() && dropout.get<double>() != 0) {
    throw Error(Fault::kData, "{}: dropout is {}: ids would be random; set it to null in the file",
                where, dropout.get<double>());
  }
  BpeFacts facts;
  facts.vocabulary = read_vocabulary(model, where);
  facts.merges = read_json_merges(model, where);
  facts.unknown = optional_text(model, "unk_token", where);
  facts.continuing_prefix = text_field(model, "continuing_subword_prefix", where);
  facts.end_suffix = text_field(model, "end_of_word_suffix", where);
  facts.fuse_unknown = bool_field(model, "fuse_unk", where, false);
  facts.byte_fallback = bool_field(model, "byte_fallback", where, false);
  facts.ignore_merges = bool_field(model, "ignore_merges", where, false);
  return facts;
}

UnigramFacts read_unigram(const Json& model, const std::string& where) {
  UnigramFacts facts;
  for (const Json& entry : need_array(model, "vocab", where)) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      throw Error(Fault::kData, "{}: vocabulary entry {}: wanted [piece, score]; fix the file",
                  where, facts.pieces.size());
    }
    facts.pieces.emplace_back(entry[0].get<std::string>(), entry[1].get<double>());
  }
  if (!field(model, "unk_id", where).is_null()) {
    facts.unknown = read_id(need_integer(model, "unk_id", where), "unk_id", where);
  }
  facts.byte_fallback = bool_field(model, "byte_fallback", where, false);
  return facts;
}

// Older files have no "type": the fields present tell the kind of model.
std::string model_type(const Json& model, const std::string& where) {
  std::string type = text_field(model, "type", where);
  if (!type.empty()) return type;
  if (model.contains("merges")) return "BPE";
  if (model.contains("unk_id") || (model.contains("vocab") && model["vocab"].is_array())) {
    return "Unigram";
  }
  return model.contains("continuing_subword_prefix") ? "WordPiece" : "WordLevel";
}

// Whether a byte-level vocabulary has all bytes, so that it can be read as raw bytes.
bool has_all_bytes(const Json& model) {
  const Json& vocabulary = model.contains("vocab") ? model["vocab"] : Json();
  if (!vocabulary.is_object()) return false;
  // Tests four bytes in place of all 256: 0 (spelled U+0100), space (U+0120), "!" and 0xFF.
  return vocabulary.contains("\xC4\x80") && vocabulary.contains("\xC4\xA0") &&
         vocabulary.contains("!") && vocabulary.contains("\xC3\xBF");
}

// `pieces`: size of the model's vocabulary.
std::vector<AddedToken> read_added(const Json& json, std::int64_t pieces,
                                   const std::string& where) {
  std::vector<AddedToken> added;
  const Json& list = field(json, "added_tokens", where);
  if (list.is_null()) return added;
  for (const Json& entry : need_array(json, "added_tokens", where)) {
    AddedToken token;
    token.content = need_text(entry, "content", where);
    token.id = read_id(need_integer(entry, "id", where), token.content, where);
    check_added_token(token, pieces, where);
    token.special = bool_field(entry, "special", where, false);
    token.single_word = bool_field(entry, "single_word", where, false);
    token.lstrip = bool_field(entry, "lstrip", where, false);
    token.rstrip = bool_field(entry, "rstrip", where, false);
    token.normalized = bool_field(entry, "normalized", where, !token.special);
    if (!token.content.empty()) added.push_back(std::move(token));
  }
  return added;
}

// Ids that a post-processor adds before and after a text. Inner steps are wrapped first.
struct Frame {
  std::vector<std::int32_t> prefix;
  std::vector<std::int32_t> suffix;
  void wrap(const std::vector<std::int32_t>& before, const std::vector<std::int32_t>& after) {
    prefix.insert(prefix.begin(), before.begin(), before.end());
    suffix.insert(suffix.end(), after.begin(), after.end());
  }
};

std::int32_t pair_id(const Json& processor, const char* key, const std::string& where) {
  const Json& pair = need_array(processor, key, where);
  if (pair.size() != 2 || !pair[1].is_number_integer()) {
    throw Error(Fault::kData, "{}: field \"{}\": wanted [token, id]; fix the file", where, key);
  }
  return read_id(pair[1].get<std::int64_t>(), key, where);
}

void read_template(const Json& processor, const std::string& where, Frame& frame) {
  const Json& known = need_object(processor, "special_tokens", where);
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
  int sequences = 0;
  for (const Json& item : need_array(processor, "single", where)) {
    if (!field(item, "Sequence", where).is_null()) {
      ++sequences;
      continue;
    }
    const std::string name = need_text(need_object(item, "SpecialToken", where), "id", where);
    const Json& token = need_object(known, name.c_str(), where);
    for (const Json& id : need_array(token, "ids", where)) {
      if (!id.is_number_integer()) {
        throw Error(Fault::kData, "{}: ids of \"{}\" are not integers; fix the file", where, name);
      }
      (sequences == 0 ? before : after).push_back(read_id(id.get<std::int64_t>(), name, where));
    }
  }
  if (sequences != 1) {
    throw Error(Fault::kData, "{}: the template holds the text {} times, wanted once; fix the file",
                where, sequences);
  }
  frame.wrap(before, after);
}

void read_post_processor(const Json& processor, const std::string& where, int depth, Frame& frame) {
  if (processor.is_null()) return;
  if (depth > 16) throw Error(Fault::kData, "{}: nested too deep; flatten it", where);
  const std::string type = need_text(processor, "type", where);
  if (type == "Sequence") {
    for (const Json& step : need_array(processor, "processors", where)) {
      read_post_processor(step, where, depth + 1, frame);
    }
  } else if (type == "TemplateProcessing") {
    read_template(processor, where, frame);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    frame.wrap({pair_id(processor, "cls", where)}, {pair_id(processor, "sep", where)});
  } else if (type != "ByteLevel") {  // ByteLevel only trims offsets
    throw Error(Fault::kData,
                "{}: type \"{}\" is not known, wanted one of Sequence, TemplateProcessing, "
                "BertProcessing, RobertaProcessing, ByteLevel; convert the tokenizer",
                where, type);
  }
}

void check_frame(const Frame& frame, const TokenizerParts& parts, const std::string& where) {
  const auto is_known = [&](std::int32_t id) {
    return parts.model->vocabulary().has(id) ||
           std::any_of(parts.added.begin(), parts.added.end(),
                       [id](const AddedToken& token) { return token.id == id; });
  };
  for (const auto* ids : {&frame.prefix, &frame.suffix}) {
    for (const std::int32_t id : *ids) {
      if (is_known(id)) continue;
      throw Error(Fault::kData,
                  "{}: it puts id {} around a text, which neither the vocabulary nor the added "
                  "tokens have; fix the file",
                  where, id);
    }
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> read_json_merges(const Json& model,
                                                                  const std::string& where) {
  std::vector<std::pair<std::string, std::string>> merges;
  const Json& array = need_array(model, "merges", where);
  merges.reserve(array.size());
  for (const Json& merge : array) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      throw Error(Fault::kData,
                  "{}: merge {}: got {}, wanted two pieces with one space between; fetch the file "
                  "again (some mirrors turn no-break spaces into spaces)",
                  where, merges.size(),
                  merge.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60));
    }
    merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return merges;
}

TokenizerParts read_tokenizer_json(std::string_view text, const std::string& where) {
  const Json json = parse_json(text, where);
  const Json& model = need_object(json, "model", where);
  const std::string type = model_type(model, where);
  TokenizerParts parts;
  parts.normalizer = read_normalizer(field(json, "normalizer", where), where + ": normalizer");
  const bool raw = type == "BPE" && has_all_bytes(model);
  PreTokenizerFacts words =
      read_pre_tokenizer(field(json, "pre_tokenizer", where), where + ": pre_tokenizer", raw);
  parts.pre_tokenizer = std::move(words.step);
  parts.scanner = words.scanner;
  const std::string model_where = where + ": model";
  if (type == "BPE") {
    BpeFacts facts = read_bpe(model, model_where);
    facts.byte_level =
        words.byte_level && raw && facts.continuing_prefix.empty() && facts.end_suffix.empty();
    if (words.byte_level && raw && !facts.byte_level) {
      throw Error(Fault::kData,
                  "{}: a byte-level vocabulary with a prefix or suffix of words is not supported",
                  model_where);
    }
    parts.byte_level = facts.byte_level;
    parts.model = std::make_unique<BpeModel>(facts, model_where);
    parts.name = facts.byte_level ? "byte-level BPE" : "BPE";
  } else if (type == "Unigram") {
    parts.model = std::make_unique<UnigramModel>(read_unigram(model, model_where), model_where);
    parts.name = "Unigram";
  } else if (type == "WordPiece") {
    WordPieceFacts facts;
    facts.vocabulary = read_vocabulary(model, model_where);
    facts.unknown = text_field(model, "unk_token", model_where, "[UNK]");
    facts.continuing_prefix = text_field(model, "continuing_subword_prefix", model_where, "##");
    facts.max_characters = integer_field(model, "max_input_chars_per_word", model_where, 100);
    parts.model = std::make_unique<WordPieceModel>(facts, model_where);
    parts.name = "WordPiece";
  } else if (type == "WordLevel") {
    parts.model = std::make_unique<WordLevelModel>(
        read_vocabulary(model, model_where), text_field(model, "unk_token", model_where, "<unk>"),
        model_where);
    parts.name = "WordLevel";
  } else {
    throw Error(Fault::kData,
                "{}: type \"{}\" is not known, wanted one of BPE, Unigram, WordPiece, WordLevel; "
                "convert the tokenizer",
                model_where, type);
  }
  parts.added = read_added(json, parts.model->vocabulary().size(), where + ": added_tokens");
  DecoderFacts decoder = read_decoder(field(json, "decoder", where), where + ": decoder");
  parts.decoder = std::move(decoder.decoder);
  parts.byte_level_decoder = decoder.byte_level;
  parts.byte_fallback_decoder = decoder.byte_fallback;
  Frame frame;
  const std::string post_where = where + ": post_processor";
  read_post_processor(field(json, "post_processor", where), post_where, 0, frame);
  check_frame(frame, parts, post_where);
  parts.prefix = std::move(frame.prefix);
  parts.suffix = std::move(frame.suffix);
  if (const auto unknown = optional_text(model, "unk_token", model_where)) {
    parts.special.unk = parts.model->vocabulary().id_of(*unknown);
  } else if (type == "Unigram" && !field(model, "unk_id", model_where).is_null()) {
    parts.special.unk = read_id(need_integer(model, "unk_id", model_where), "unk_id", model_where);
  }
  StreamHash hash;
  hash.add(std::as_bytes(std::span(text)));
  parts.content_hash = hash.hex();
  return parts;
}

}  // namespace piton
