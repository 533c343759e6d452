#include "text/training/tokenizer_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/options/option_range.h"
#include "text/models/vocabulary.h"
#include "text/unicode/scanners.h"

namespace piton {
namespace {

constexpr const char* kMetaspace = "\xE2\x96\x81";

// What an algorithm takes where the user names nothing.
struct AlgorithmDefaults {
  const char* name;
  std::vector<std::string> pre_tokenizers;  // that go with it, the default first
  std::vector<std::string> normalizer;
  std::vector<std::string> special_tokens;
};

AlgorithmDefaults defaults_of(VocabularyAlgorithm algorithm) {
  switch (algorithm) {
    case VocabularyAlgorithm::kByteLevelBpe:
      return {"byte-level-bpe", {"gpt2", "llama3", "qwen2"}, {}, {"<|endoftext|>"}};
    case VocabularyAlgorithm::kBpe:
      return {"bpe", {"metaspace"}, {}, {"<unk>", "<s>", "</s>"}};
    case VocabularyAlgorithm::kUnigram:
      return {"unigram", {"metaspace"}, {"nmt", "nfkc", "spaces"}, {"<pad>", "</s>", "<unk>"}};
    case VocabularyAlgorithm::kWordPiece:
      return {"wordpiece",
              {"bert", "whitespace"},
              {"bert"},
              {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}};
  }
  PITON_ASSERT(false, "no algorithm");
  return {};
}

Json bert_normalizer(bool lowercase) {
  return {{"type", "BertNormalizer"},
          {"clean_text", true},
          {"handle_chinese_chars", true},
          {"strip_accents", nullptr},
          {"lowercase", lowercase}};
}

Json normalizer_step(const std::string& name) {
  if (name == "nfc" || name == "nfd" || name == "nfkc" || name == "nfkd") {
    std::string type = name;
    std::transform(type.begin(), type.end(), type.begin(),
                   [](char c) { return static_cast<char>(c - 'a' + 'A'); });
    return {{"type", type}};
  }
  if (name == "nmt") return {{"type", "Nmt"}};
  if (name == "lowercase") return {{"type", "Lowercase"}};
  if (name == "strip-accents") return {{"type", "StripAccents"}};
  if (name == "spaces") {
    return {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}};
  }
  if (name == "bert") return bert_normalizer(true);
  if (name == "bert-cased") return bert_normalizer(false);
  throw Error(Fault::kUsage,
              "--normalizer: got \"{}\", wanted none, nfc, nfd, nfkc, nfkd, nmt, lowercase, "
              "strip-accents, spaces, bert or bert-cased",
              name);
}

Json normalizer_of(const std::vector<std::string>& names) {
  if (names.empty() || names == std::vector<std::string>{"none"}) return nullptr;
  Json steps = Json::array();
  for (const std::string& name : names) steps.push_back(normalizer_step(name));
  if (steps.size() == 1) return steps[0];
  return {{"type", "Sequence"}, {"normalizers", steps}};
}

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

Json split_at(const Json& pattern) {
  return {{"type", "Split"}, {"pattern", pattern}, {"behavior", "Isolated"}, {"invert", false}};
}

Json metaspace(bool with_split) {
  Json step = {{"type", "Metaspace"}, {"replacement", kMetaspace}, {"prepend_scheme", "first"}};
  step["split"] = with_split;
  return step;
}

Json pre_tokenizer_of(const std::string& name, bool split_digits) {
  std::vector<Json> steps;
  if (split_digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (name == "gpt2") {
    steps.push_back(byte_level(true));
  } else if (name == "llama3" || name == "qwen2") {
    const Scanner published{.kind = Scanner::Kind::kCl100k, .digits = name == "llama3" ? 3 : 1};
    steps.push_back(split_at({{"Regex", published.pattern()}}));
    steps.push_back(byte_level(false));
  } else if (name == "metaspace") {
    steps.push_back(split_at({{"String", "\n"}}));  // no piece crosses a line
    steps.push_back(metaspace(true));
  } else if (name == "bert") {
    steps.push_back({{"type", "BertPreTokenizer"}});
  } else {
    steps.push_back({{"type", "Whitespace"}});
  }
  if (steps.size() == 1) return steps[0];
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

Json decoder_of(VocabularyAlgorithm algorithm) {
  switch (algorithm) {
    case VocabularyAlgorithm::kByteLevelBpe:
      return {{"type", "ByteLevel"},
              {"add_prefix_space", true},
              {"trim_offsets", true},
              {"use_regex", true}};
    case VocabularyAlgorithm::kBpe:
      return {{"type", "Sequence"},
              {"decoders",
               {{{"type", "Replace"}, {"pattern", {{"String", kMetaspace}}}, {"content", " "}},
                {{"type", "ByteFallback"}},
                {{"type", "Fuse"}},
                {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
    case VocabularyAlgorithm::kUnigram:
      return metaspace(true);
    case VocabularyAlgorithm::kWordPiece:
      return {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  }
  return nullptr;
}

void check_special_tokens(const std::vector<std::string>& tokens) {
  std::set<std::string> seen;
  for (const std::string& token : tokens) {
    if (token.empty()) {
      throw Error(Fault::kUsage,
                  "--special-tokens: got \"\", wanted tokens with at least a letter");
    }
    if (token.size() > PieceVocabulary::kMaxPieceBytes) {
      throw Error(Fault::kUsage, "--special-tokens: got one of {} bytes, wanted at most {}",
                  token.size(), PieceVocabulary::kMaxPieceBytes);
    }
    if (!seen.insert(token).second) {
      throw Error(Fault::kUsage, "--special-tokens: got \"{}\" twice, wanted each token once",
                  token);
    }
  }
}

// The roles that are named, and those of tokens with a usual name.
std::vector<std::pair<std::string, std::string>> roles_of(const TokenizerTrainingOptions& options,
                                                          const std::vector<std::string>& tokens) {
  struct Role {
    const char* name;
    const std::string* named;  // null: there is no option
    std::vector<std::string> usual;
  };
  const Role all[] = {{"bos_token", &options.bos_token, {"<s>", "[BOS]", "<|begin_of_text|>"}},
                      {"eos_token",
                       &options.eos_token,
                       {"</s>", "<|endoftext|>", "[EOS]", "<|end_of_text|>", "<|im_end|>"}},
                      {"unk_token", &options.unk_token, {"<unk>", "[UNK]"}},
                      {"pad_token", &options.pad_token, {"<pad>", "[PAD]"}},
                      {"cls_token", nullptr, {"[CLS]"}},
                      {"sep_token", nullptr, {"[SEP]"}},
                      {"mask_token", nullptr, {"[MASK]", "<mask>"}}};
  const auto is_special = [&](const std::string& token) {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  };
  std::vector<std::pair<std::string, std::string>> roles;
  for (const Role& role : all) {
    if (role.named != nullptr && !role.named->empty()) {
      if (!is_special(*role.named)) {
        std::string flag = std::string("--") + role.name;
        std::replace(flag.begin(), flag.end(), '_', '-');
        throw Error(Fault::kUsage, "{}: got \"{}\", wanted one of --special-tokens: {}", flag,
                    *role.named, fmt::join(tokens, " "));
      }
      roles.emplace_back(role.name, *role.named);
      continue;
    }
    const auto usual = std::find_if(role.usual.begin(), role.usual.end(), is_special);
    if (usual != role.usual.end()) roles.emplace_back(role.name, *usual);
  }
  return roles;
}

}  // namespace

std::string TokenizerPlan::token_of(const std::string& role) const {
  for (const auto& [name, token] : roles) {
    if (name == role) return token;
  }
  return "";
}

std::vector<std::string> TokenizerPlan::first_pieces() const {
  std::vector<std::string> pieces = special_tokens;
  if (algorithm == VocabularyAlgorithm::kBpe) {
    for (int byte = 0; byte < 256; ++byte) pieces.push_back(fmt::format("<0x{:02X}>", byte));
  }
  return pieces;
}

TokenizerPlan plan_tokenizer(const TokenizerTrainingOptions& options) {
  const AlgorithmDefaults defaults = defaults_of(options.algorithm);
  check_range("--vocab-size", options.vocab_size, 1, PieceVocabulary::kMaxId);
  check_range("--min-frequency", options.min_frequency, 0);
  const bool byte_level_pieces = options.algorithm == VocabularyAlgorithm::kByteLevelBpe;
  const bool unigram = options.algorithm == VocabularyAlgorithm::kUnigram;
  if (options.limit_alphabet) {
    check_range("--limit-alphabet", *options.limit_alphabet, 1);
    if (byte_level_pieces || unigram) {
      throw Error(
          Fault::kUsage,
          "--limit-alphabet: works only with --algorithm bpe and wordpiece; leave it out ({})",
          byte_level_pieces ? "the alphabet of byte-level-bpe is the 256 bytes"
                            : "unigram keeps every character");
    }
  }
  const auto& fitting = defaults.pre_tokenizers;
  const std::string cut = options.pre_tokenizer.empty() ? fitting.front() : options.pre_tokenizer;
  if (std::find(fitting.begin(), fitting.end(), cut) == fitting.end()) {
    throw Error(Fault::kUsage, "--pre-tokenizer: got {}, wanted {} with --algorithm {}", cut,
                fmt::join(fitting, " or "), defaults.name);
  }
  TokenizerPlan plan;
  plan.algorithm = options.algorithm;
  plan.normalizer =
      normalizer_of(options.normalizer.empty() ? defaults.normalizer : options.normalizer);
  plan.pre_tokenizer = pre_tokenizer_of(cut, options.split_digits);
  plan.decoder = decoder_of(options.algorithm);
  plan.special_tokens =
      options.special_tokens.empty() ? defaults.special_tokens : options.special_tokens;
  check_special_tokens(plan.special_tokens);
  plan.roles = roles_of(options, plan.special_tokens);
  const bool needs_unknown = unigram || options.algorithm == VocabularyAlgorithm::kWordPiece;
  if (needs_unknown && plan.token_of("unk_token").empty()) {
    throw Error(Fault::kUsage,
                "--special-tokens: --algorithm {} needs one for what has no piece; add <unk>, or "
                "name it with --unk-token",
                defaults.name);
  }
  return plan;
}

}  // namespace piton
