// Text to token ids and back.
//
// A tokenizer maps bytes (usually UTF-8, but any bytes are allowed) to ids 0 ..
// vocabulary_size()-1. encode() never fails on text: bytes that are not UTF-8 are kept if the
// vocabulary has bytes, and become U+FFFD (one for each maximal ill-formed part) if it has only
// characters.
//
// Every method is const and thread-safe; results depend only on the arguments. Readers of files
// throw Error(kData) for malformed files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace piton {

struct EncodeOptions {
  // Adds the special tokens around a text that the tokenizer's files define (<s>, [CLS] .. [SEP],
  // ...).
  bool add_special_tokens = false;
  // Special tokens in the text become their ids. By default they are plain text, so that
  // a document cannot forge them. Added tokens that are not special are matched in both cases.
  bool parse_special_tokens = false;
};

struct DecodeOptions {
  // Leaves out special tokens; by default they are written as their names.
  bool skip_special_tokens = false;
};

// Ids of the tokens with a role; unset where the tokenizer has none.
struct SpecialIds {
  std::optional<std::int32_t> bos;
  std::optional<std::int32_t> eos;
  std::optional<std::int32_t> eod;  // what ends a document in a corpus: eos, else <|endoftext|>
  std::optional<std::int32_t> pad;
  std::optional<std::int32_t> unk;
  std::optional<std::int32_t> cls;
  std::optional<std::int32_t> sep;
  std::optional<std::int32_t> mask;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // APPENDS the ids of `text` to `out`.
  virtual void encode(std::string_view text, EncodeOptions options,
                      std::vector<std::int32_t>& out) const = 0;
  std::vector<std::int32_t> encode(std::string_view text, EncodeOptions options = {}) const;

  // The bytes that `ids` decode to; not always UTF-8, since an id may be part of a character.
  // Ids outside the vocabulary (padded rows of the model) decode to nothing.
  virtual std::string decode(std::span<const std::int32_t> ids,
                             DecodeOptions options = {}) const = 0;

  // The entry of `id` as the vocabulary spells it ("Ġthe", "▁the", "<0x0A>"); "" if it has none.
  virtual std::string piece(std::int32_t id) const = 0;
  // The id of an entry or added token, in the spelling of piece().
  virtual std::optional<std::int32_t> id_of(std::string_view piece) const = 0;

  // One more than the largest id; holes in the vocabulary count.
  virtual std::int64_t vocabulary_size() const = 0;

  virtual bool is_special(std::int32_t id) const = 0;

  // True if the text of `id` may depend on the ids that follow: a byte of a fallback run is U+FFFD
  // unless the whole run is UTF-8. StreamDecoder waits for the end of such runs.
  virtual bool open_ended(std::int32_t) const { return false; }

  const SpecialIds& special() const { return special_; }

  // For manifests: the kind ("byte", "byte-level BPE", ...) and 32 hex digits over the contents of
  // the files that determine ids. Tokenizers with the same hash give the same ids.
  const std::string& name() const { return name_; }
  const std::string& content_hash() const { return content_hash_; }

 protected:
  SpecialIds special_;
  std::string name_;
  std::string content_hash_;
};

// Decodes one id after another. Joined, the results of push() and finish() equal decode() of all
// ids; no result ends inside a UTF-8 character.
class StreamDecoder {
 public:
  // `tokenizer` must outlive the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer, DecodeOptions options = {})
      : tokenizer_(&tokenizer), options_(options) {}

  // Begins after `ids`, a prompt: the results are what follows its text. Some decoders leave out
  // the space before the first id of a text, which what follows a prompt keeps. If the prompt ends
  // inside a character, that character belongs to the results.
  void start_after(std::span<const std::int32_t> ids);

  // The text that is certain after `id`; often "".
  std::string push(std::int32_t id);
  // The rest: bytes of an unfinished character.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  std::vector<std::int32_t> window_;  // ids since the last safe place, after some context
  std::size_t shown_ = 0;             // bytes of decode(window_) that were returned
};

// Length of the longest prefix of `text` that does not end inside a UTF-8 character. Bytes that can
// never become a character count as complete.
std::size_t complete_utf8_prefix(std::string_view text);

}  // namespace piton
