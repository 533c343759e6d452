#include <algorithm>
#include <utility>

#include "text/files/base64.h"
#include "text/files/tokenizer_json.h"

namespace piton {
namespace {

// Deepest nesting of sequences that is accepted.
constexpr int kMaxDepth = 16;

void check_depth(int depth, const std::string& where) {
  if (depth > kMaxDepth) {
    throw Error(Fault::kData, "{}: sequences are nested deeper than {}; flatten them", where,
                kMaxDepth);
  }
}

[[noreturn]] void unknown_type(const std::string& type, const std::string& where,
                               const char* known) {
  throw Error(Fault::kData, "{}: type \"{}\" is not known, wanted one of {}; convert the tokenizer",
              where, type, known);
}

// {"String": "x"} or {"Regex": "x"}.
struct PatternFacts {
  bool is_regex = false;
  std::string text;
};

PatternFacts read_pattern(const Json& step, const std::string& where) {
  const Json& pattern = field(step, "pattern", where);
  if (pattern.is_string()) return {false, pattern.get<std::string>()};
  const Json& regex = field(pattern, "Regex", where);
  if (regex.is_string()) return {true, regex.get<std::string>()};
  return {false, need_text(pattern, "String", where)};
}

// Upper bound of how many times longer the steps in `json` can make a text. `inner`: the field that
// holds the steps of a sequence.
double growth_of(const Json& json, const char* inner, const std::string& where, int depth) {
  check_depth(depth, where);
  const std::string type = need_text(json, "type", where);
  if (type == "Sequence") {
    double product = 1;
    for (const Json& step : need_array(json, inner, where)) {
      product *= growth_of(step, inner, where, depth + 1);
    }
    return product;
  }
  if (type == "ByteLevel") return 2;
  if (type != "Replace") return 1;
  const PatternFacts pattern = read_pattern(json, where);
  const auto to = static_cast<double>(need_text(json, "content", where).size());
  // A regular expression may match the empty string at every byte.
  if (pattern.is_regex) return to + 1;
  return std::max(1.0, to / static_cast<double>(std::max<std::size_t>(pattern.text.size(), 1)));
}

// Rejects steps that could make a text too long for memory, as forty steps that double it.
void check_growth(const Json& json, const char* inner, const std::string& where) {
  constexpr double kMostGrowth = 4096;
  const double growth = growth_of(json, inner, where, 0);
  if (growth > kMostGrowth) {
    throw Error(Fault::kData,
                "{}: its steps can make a text {:.3g} times as long, wanted at most {}; is it the "
                "right file?",
                where, growth, kMostGrowth);
  }
}

SplitBehavior read_behavior(const std::string& name, const std::string& where) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  unknown_type(name, where + " behavior",
               "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

PrependScheme read_scheme(const Json& json, const std::string& where) {
  const std::string name = text_field(json, "prepend_scheme", where);
  if (name == "first") return PrependScheme::kFirst;
  if (name == "never") return PrependScheme::kNever;
  if (name == "always") return PrependScheme::kAlways;
  if (!name.empty()) unknown_type(name, where + " prepend_scheme", "first, never, always");
  // The older field for this setting.
  return bool_field(json, "add_prefix_space", where, true) ? PrependScheme::kAlways
                                                           : PrependScheme::kNever;
}

BertRules read_bert_rules(const Json& json, const std::string& where) {
  BertRules rules;
  rules.clean_text = bool_field(json, "clean_text", where, true);
  rules.handle_chinese_chars = bool_field(json, "handle_chinese_chars", where, true);
  rules.lowercase = bool_field(json, "lowercase", where, true);
  rules.strip_accents = bool_field(json, "strip_accents", where, rules.lowercase);
  return rules;
}

// Collects the steps of a pre-tokenizer, sequences flattened.
struct PreTokenizerReader {
  const std::string& where;
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  std::optional<Scanner> only_scanner;  // set if the steps are exactly one scanner
  bool byte_level = false;
  std::shared_ptr<const CharacterTable> table;

  void scan(Scanner scanner) {
    if (table == nullptr) table = std::make_shared<const CharacterTable>();
    add(make_scan(scanner, table), scanner);
  }
  void add(std::unique_ptr<PreTokenizer> step, std::optional<Scanner> scanner = std::nullopt) {
    if (byte_level) add_spelling();  // a step follows, so spelling cannot be left to the model
    only_scanner = steps.empty() ? scanner : std::nullopt;
    steps.push_back(std::move(step));
  }
  void add_spelling() {
    only_scanner = std::nullopt;
    steps.push_back(make_byte_spelling());
    byte_level = false;
  }

  void read(const Json& json, int depth) {
    check_depth(depth, where);
    const std::string type = need_text(json, "type", where);
    if (type == "Sequence") {
      for (const Json& step : need_array(json, "pretokenizers", where)) read(step, depth + 1);
    } else if (type == "ByteLevel") {
      if (bool_field(json, "add_prefix_space", where, true)) add(make_prefix_space());
      if (bool_field(json, "use_regex", where, true)) {
        scan({Scanner::Kind::kGpt2, 0});
      }
      if (byte_level) add_spelling();
      byte_level = true;
    } else if (type == "Split") {
      read_split(json);
    } else if (type == "Metaspace") {
      add(make_metaspace(text_field(json, "replacement", where, "\xE2\x96\x81"),
                         read_scheme(json, where), bool_field(json, "split", where, true)));
    } else if (type == "BertPreTokenizer") {
      scan({Scanner::Kind::kBert, 0});
    } else if (type == "Whitespace") {
      add(make_whitespace());
    } else if (type == "WhitespaceSplit") {
      add(make_whitespace_split());
    } else if (type == "Punctuation") {
      add(make_punctuation(read_behavior(text_field(json, "behavior", where, "Isolated"), where)));
    } else if (type == "Digits") {
      add(make_digits(bool_field(json, "individual_digits", where, false)));
    } else if (type == "CharDelimiterSplit") {
      add(make_split(need_text(json, "delimiter", where), SplitBehavior::kRemoved, false));
    } else {
      unknown_type(type, where,
                   "Sequence, ByteLevel, Split, Metaspace, BertPreTokenizer, Whitespace, "
                   "WhitespaceSplit, Punctuation, Digits, CharDelimiterSplit");
    }
  }

  void read_split(const Json& json) {
    const PatternFacts pattern = read_pattern(json, where);
    const SplitBehavior behavior = read_behavior(need_text(json, "behavior", where), where);
    const bool invert = bool_field(json, "invert", where, false);
    if (!pattern.is_regex) {
      add(make_split(pattern.text, behavior, invert));
      return;
    }
    const std::optional<Scanner> scanner = Scanner::for_pattern(pattern.text);
    // A scanner returns the matches and the text between them.
    const bool covers = scanner && scanner->kind != Scanner::Kind::kBloom;
    const bool fits = (behavior == SplitBehavior::kIsolated && !invert) ||
                      (covers && behavior == SplitBehavior::kRemoved && invert) ||
                      (covers && behavior == SplitBehavior::kIsolated);
    if (scanner && fits) {
      scan(*scanner);
    } else {
      add(make_split(Pattern(pattern.text, where), behavior, invert));
    }
  }
};

}  // namespace

std::unique_ptr<Normalizer> read_normalizer(const Json& json, const std::string& where, int depth) {
  if (json.is_null()) return nullptr;
  check_depth(depth, where);
  if (depth == 0) check_growth(json, "normalizers", where);
  const std::string type = need_text(json, "type", where);
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normalizer>> steps;
    for (const Json& step : need_array(json, "normalizers", where)) {
      auto one = read_normalizer(step, where, depth + 1);
      if (one != nullptr) steps.push_back(std::move(one));
    }
    if (steps.empty()) return nullptr;
    return std::make_unique<NormalizerSequence>(std::move(steps));
  }
  if (type == "NFC") return make_normal_form(NormalForm::kNfc);
  if (type == "NFD") return make_normal_form(NormalForm::kNfd);
  if (type == "NFKC") return make_normal_form(NormalForm::kNfkc);
  if (type == "NFKD") return make_normal_form(NormalForm::kNfkd);
  if (type == "Lowercase") return make_lowercase();
  if (type == "StripAccents") return make_strip_accents();
  if (type == "Nmt") return make_nmt();
  if (type == "ByteLevel") return make_byte_level_spelling();
  if (type == "BertNormalizer") return make_bert_normalizer(read_bert_rules(json, where));
  if (type == "Strip") {
    return make_strip(bool_field(json, "strip_left", where, true),
                      bool_field(json, "strip_right", where, true));
  }
  if (type == "Prepend") return make_prepend(need_text(json, "prepend", where));
  if (type == "Replace") {
    const PatternFacts pattern = read_pattern(json, where);
    std::string content = need_text(json, "content", where);
    if (pattern.is_regex) return make_replace(Pattern(pattern.text, where), std::move(content));
    return make_replace(pattern.text, std::move(content));
  }
  if (type == "Precompiled") {
    const auto bytes = decode_base64(text_field(json, "precompiled_charsmap", where));
    if (!bytes) {
      throw Error(Fault::kData, "{}: precompiled_charsmap is not base64; fetch the file again",
                  where);
    }
    if (bytes->empty()) return nullptr;
    return make_precompiled(Charsmap(*bytes, where));
  }
  unknown_type(type, where,
               "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Nmt, ByteLevel, "
               "BertNormalizer, Strip, Prepend, Replace, Precompiled");
}

PreTokenizerFacts read_pre_tokenizer(const Json& json, const std::string& where, bool raw_bytes) {
  PreTokenizerFacts facts;
  if (json.is_null()) return facts;
  PreTokenizerReader reader{where, {}, {}, false, nullptr};
  reader.read(json, 0);
  facts.byte_level = reader.byte_level;
  if (reader.byte_level && !raw_bytes) reader.add_spelling();
  if (reader.steps.size() == 1) {
    facts.scanner = reader.only_scanner;
    facts.step = std::move(reader.steps[0]);
  } else if (!reader.steps.empty()) {
    facts.step = make_sequence(std::move(reader.steps));
  }
  return facts;
}

namespace {

void read_decoder_steps(const Json& json, const std::string& where, int depth, DecoderFacts& facts,
                        std::vector<std::unique_ptr<PieceDecoder>>& steps) {
  check_depth(depth, where);
  const std::string type = need_text(json, "type", where);
  if (type == "Sequence") {
    for (const Json& step : need_array(json, "decoders", where)) {
      read_decoder_steps(step, where, depth + 1, facts, steps);
    }
  } else if (type == "ByteLevel") {
    facts.byte_level = true;
    steps.push_back(make_byte_level_decoder());
  } else if (type == "ByteFallback") {
    facts.byte_fallback = true;
    steps.push_back(make_byte_fallback_decoder());
  } else if (type == "Fuse") {
    steps.push_back(make_fuse_decoder());
  } else if (type == "Metaspace") {
    steps.push_back(make_metaspace_decoder(text_field(json, "replacement", where, "\xE2\x96\x81"),
                                           read_scheme(json, where) != PrependScheme::kNever));
  } else if (type == "WordPiece") {
    steps.push_back(make_word_piece_decoder(text_field(json, "prefix", where, "##"),
                                            bool_field(json, "cleanup", where, true)));
  } else if (type == "BPEDecoder") {
    steps.push_back(make_bpe_decoder(text_field(json, "suffix", where, "</w>")));
  } else if (type == "Strip") {
    const std::int64_t start = integer_field(json, "start", where, 0);
    const std::int64_t stop = integer_field(json, "stop", where, 0);
    if (start < 0 || stop < 0) {
      throw Error(Fault::kData, "{}: Strip: got {} and {}, wanted counts; fix the file", where,
                  start, stop);
    }
    steps.push_back(make_strip_decoder(need_text(json, "content", where),
                                       static_cast<std::size_t>(start),
                                       static_cast<std::size_t>(stop)));
  } else if (type == "Replace") {
    const PatternFacts pattern = read_pattern(json, where);
    std::string content = need_text(json, "content", where);
    if (pattern.is_regex) {
      steps.push_back(make_replace_decoder(Pattern(pattern.text, where), std::move(content)));
    } else {
      steps.push_back(make_replace_decoder(pattern.text, std::move(content)));
    }
  } else {
    unknown_type(
        type, where,
        "Sequence, ByteLevel, ByteFallback, Fuse, Metaspace, WordPiece, BPEDecoder, Strip, "
        "Replace");
  }
}

}  // namespace

DecoderFacts read_decoder(const Json& json, const std::string& where) {
  DecoderFacts facts;
  if (json.is_null()) return facts;
  std::vector<std::unique_ptr<PieceDecoder>> steps;
  check_growth(json, "decoders", where);
  read_decoder_steps(json, where, 0, facts, steps);
  facts.byte_level = facts.byte_level && steps.size() == 1;
  facts.decoder = make_decoder_sequence(std::move(steps));
  return facts;
}

}  // namespace piton
