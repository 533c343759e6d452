// Normalizers, the first step of a tokenizer.json: from text to text.
//
// Results equal those of the `tokenizers` library, including its Unicode versions: normal forms of
// Unicode 9.0 (later characters stay unchanged), control and punctuation of 8.0. Texts must be
// well-formed UTF-8 unless takes_any_bytes().
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/unicode/charsmap.h"
#include "text/unicode/pattern.h"

namespace piton {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Rewrites `text` in place.
  virtual void apply(std::string& text) const = 0;
  // True if apply() also takes texts that are not well-formed: it keeps the bytes that are not a
  // character and rewrites each stretch between them.
  virtual bool takes_any_bytes() const { return false; }
};

class NormalizerSequence final : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> steps)
      : steps_(std::move(steps)) {}
  void apply(std::string& text) const override {
    for (const auto& step : steps_) step->apply(text);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
std::unique_ptr<Normalizer> make_normal_form(NormalForm form);

std::unique_ptr<Normalizer> make_lowercase();
std::unique_ptr<Normalizer> make_strip(bool left, bool right);
// Removes marks (M*).
std::unique_ptr<Normalizer> make_strip_accents();
// Adds `prefix` before a text that is not empty.
std::unique_ptr<Normalizer> make_prepend(std::string prefix);
std::unique_ptr<Normalizer> make_replace(std::string from, std::string to);
std::unique_ptr<Normalizer> make_replace(Pattern from, std::string to);
// Removes control characters and replaces white space by " ".
std::unique_ptr<Normalizer> make_nmt();
// Spells the bytes of the text in the byte-level alphabet (byte_level.h).
std::unique_ptr<Normalizer> make_byte_level_spelling();

// Applies the map to whole grapheme clusters below six bytes, else to characters. Of several
// entries that begin a cluster, uses the shortest.
std::unique_ptr<Normalizer> make_precompiled(Charsmap map);

struct BertRules {
  bool clean_text = true;            // removes control characters, white space becomes " "
  bool handle_chinese_chars = true;  // spaces around ideographs
  bool strip_accents = true;         // NFD, then removes nonspacing marks
  bool lowercase = true;
};
std::unique_ptr<Normalizer> make_bert_normalizer(BertRules rules);
// The same, slower: applies the rules one after another.
std::unique_ptr<Normalizer> make_bert_steps(BertRules rules);

}  // namespace piton
