#include "text/steps/pipeline_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/unicode/byte_level.h"

namespace piton {

struct PipelineTokenizer::Scratch {
  explicit Scratch(const WordModel& model) : encoder(model) {}
  WordEncoder encoder;
  std::vector<AddedTokenMatcher::Part> parts;
  std::vector<AddedTokenMatcher::Part> inner_parts;
  Words words;
};

PipelineTokenizer::PipelineTokenizer(TokenizerParts parts) : parts_(std::move(parts)) {
  PITON_ASSERT(parts_.model != nullptr);
  name_ = parts_.name;
  content_hash_ = parts_.content_hash;
  special_ = parts_.special;
  size_ = parts_.model->vocabulary().size();
  for (const AddedToken& token : parts_.added) {
    size_ = std::max<std::int64_t>(size_, token.id + std::int64_t{1});
  }
  added_by_id_.assign(static_cast<std::size_t>(size_), nullptr);
  for (const AddedToken& token : parts_.added) {
    added_by_id_[static_cast<std::size_t>(token.id)] = &token;
    if (token.normalized) {
      normalized_tokens_.add(token, normalized(token.content));
    } else {
      raw_tokens_.add(token, token.content);
    }
  }
  if (parts_.byte_level_decoder) {
    const ByteAlphabet alphabet;
    bytes_of_id_.resize(static_cast<std::size_t>(size_));
    for (std::int64_t id = 0; id < size_; ++id) {
      const std::string text = piece(static_cast<std::int32_t>(id));
      bytes_of_id_[static_cast<std::size_t>(id)] = alphabet.bytes(text).value_or(text);
    }
  }
}

PipelineTokenizer::~PipelineTokenizer() = default;

std::string PipelineTokenizer::normalized(std::string_view text) const {
  std::string out(text);
  if (parts_.normalizer == nullptr) return out;
  if (!parts_.byte_level || parts_.normalizer->takes_any_bytes() ||
      valid_utf8_prefix(text) == text.size()) {
    parts_.normalizer->apply(out);
    return out;
  }
  // Only byte-level vocabularies take bytes that are not UTF-8; these bytes stay unchanged.
  out.clear();
  std::string run;
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    if (valid != 0) {
      run.assign(text.substr(0, valid));
      parts_.normalizer->apply(run);
      out += run;
    }
    text.remove_prefix(valid);
    if (text.empty()) break;
    out.push_back(text[0]);
    text.remove_prefix(1);
  }
  return out;
}

void PipelineTokenizer::encode(std::string_view text, EncodeOptions options,
                               std::vector<std::int32_t>& out) const {
  std::string mended;
  if (!parts_.byte_level && valid_utf8_prefix(text) != text.size()) {
    mended = replace_bad_utf8(text);
    text = mended;
  }
  if (options.add_special_tokens) {
    out.insert(out.end(), parts_.prefix.begin(), parts_.prefix.end());
  }
  const Loan loan(pool_, [&] { return std::make_unique<Scratch>(*parts_.model); });
  Scratch& scratch = *loan;
  scratch.encoder.begin(out);
  const auto plain = [&](std::string_view stretch, bool first) {
    if (!normalized_tokens_.active(options.parse_special_tokens)) {
      return encode_plain(stretch, first, scratch);
    }
    const std::string clean = normalized(stretch);
    scratch.inner_parts.clear();
    normalized_tokens_.split(clean, options.parse_special_tokens, scratch.inner_parts);
    for (const AddedTokenMatcher::Part& part : scratch.inner_parts) {
      if (part.id >= 0) {
        out.push_back(part.id);
      } else {
        encode_normalized(std::string_view(clean).substr(part.begin, part.end - part.begin),
                          first && part.begin == 0, scratch);
      }
    }
  };
  if (raw_tokens_.active(options.parse_special_tokens)) {
    scratch.parts.clear();
    raw_tokens_.split(text, options.parse_special_tokens, scratch.parts);
    for (const AddedTokenMatcher::Part& part : scratch.parts) {
      if (part.id >= 0) {
        out.push_back(part.id);
      } else {
        plain(text.substr(part.begin, part.end - part.begin), part.begin == 0);
      }
    }
  } else if (!text.empty()) {
    plain(text, true);
  }
  if (options.add_special_tokens) {
    out.insert(out.end(), parts_.suffix.begin(), parts_.suffix.end());
  }
}

void PipelineTokenizer::encode_plain(std::string_view text, bool first, Scratch& scratch) const {
  if (parts_.normalizer == nullptr) return encode_normalized(text, first, scratch);
  encode_normalized(normalized(text), first, scratch);
}

void PipelineTokenizer::encode_normalized(std::string_view text, bool first,
                                          Scratch& scratch) const {
  WordEncoder& encoder = scratch.encoder;
  if (parts_.scanner) {
    const char* const end = text.data() + text.size();
    scan_words(*parts_.scanner, table_, text, [&](std::string_view word) {
      encoder.add(word, static_cast<std::size_t>(end - word.data()));
    });
  } else if (parts_.pre_tokenizer == nullptr) {
    encoder.add(text, text.size());
  } else if (!text.empty()) {
    Words& words = scratch.words;
    words.text = text;
    words.ranges.assign(1, {0, text.size()});
    parts_.pre_tokenizer->apply(words, first);
    for (std::size_t i = 0; i < words.ranges.size(); ++i) {
      encoder.add(words.word(i), words.text.size() - words.ranges[i].first);
    }
  }
  encoder.finish();
}

std::string PipelineTokenizer::decode(std::span<const std::int32_t> ids,
                                      DecodeOptions options) const {
  const auto wanted = [&](std::int32_t id) {
    return id >= 0 && id < size_ && !(options.skip_special_tokens && is_special(id));
  };
  std::string text;
  if (parts_.byte_level_decoder) {
    for (const std::int32_t id : ids) {
      if (wanted(id)) text += bytes_of_id_[static_cast<std::size_t>(id)];
    }
    return text;
  }
  std::vector<std::string> pieces;
  pieces.reserve(ids.size());
  for (const std::int32_t id : ids) {
    if (!wanted(id)) continue;
    if (added_by_id_[static_cast<std::size_t>(id)] == nullptr &&
        !parts_.model->vocabulary().has(id)) {
      continue;
    }
    pieces.push_back(piece(id));
  }
  if (parts_.decoder != nullptr) parts_.decoder->apply(pieces);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i > 0 && parts_.decoder == nullptr) text.push_back(' ');
    text += pieces[i];
  }
  return text;
}

std::string PipelineTokenizer::piece(std::int32_t id) const {
  if (id < 0 || id >= size_) return "";
  const AddedToken* added = added_by_id_[static_cast<std::size_t>(id)];
  return added != nullptr ? added->content : parts_.model->vocabulary().piece(id);
}

std::optional<std::int32_t> PipelineTokenizer::id_of(std::string_view piece) const {
  for (const AddedToken& token : parts_.added) {
    if (token.content == piece) return token.id;
  }
  return parts_.model->vocabulary().id_of(piece);
}

bool PipelineTokenizer::is_special(std::int32_t id) const {
  if (id < 0 || id >= size_) return false;
  const AddedToken* added = added_by_id_[static_cast<std::size_t>(id)];
  return added != nullptr && added->special;
}

bool PipelineTokenizer::open_ended(std::int32_t id) const {
  return parts_.byte_fallback_decoder && fallback_byte(piece(id)) >= 0;
}

}  // namespace piton
