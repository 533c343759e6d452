// The first step of a tokenizer.json: text to text.
//
// Follows the semantics of the `tokenizers` library, its Unicode versions included: normal forms as
// of Unicode 9.0 (later characters are left alone), control and punctuation as of 8.0. Texts are
// well-formed UTF-8, but where takes_any_bytes() says more.
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
  // True if apply() takes texts that are not well-formed too: it leaves the bytes that are no
  // character, and does what it does to each stretch between them.
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
// Puts `prefix` before a text that is not empty.
std::unique_ptr<Normalizer> make_prepend(std::string prefix);
std::unique_ptr<Normalizer> make_replace(std::string from, std::string to);
std::unique_ptr<Normalizer> make_replace(Pattern from, std::string to);
// Control characters go, white space becomes " ".
std::unique_ptr<Normalizer> make_nmt();
// One bytes-as-characters spelling of the text (byte_level.h).
std::unique_ptr<Normalizer> make_byte_level_spelling();

// The map is tried on whole grapheme clusters below six bytes, then on characters; of several
// entries that begin a cluster the shortest is taken.
std::unique_ptr<Normalizer> make_precompiled(Charsmap map);

struct BertRules {
  bool clean_text = true;            // no control characters, white space is " "
  bool handle_chinese_chars = true;  // spaces around ideographs
  bool strip_accents = true;         // NFD, then no nonspacing marks
  bool lowercase = true;
};
std::unique_ptr<Normalizer> make_bert_normalizer(BertRules rules);
// The same, slowly: the rules one after another.
std::unique_ptr<Normalizer> make_bert_steps(BertRules rules);

}  // namespace piton
