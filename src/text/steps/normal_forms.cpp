#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>

#include "base/error.h"
#include "text/steps/normalizers.h"
#include "text/unicode/characters.h"

namespace piton {
namespace {

const icu::Normalizer2& form_of(NormalForm form) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = nullptr;
  switch (form) {
    case NormalForm::kNfc:
      normalizer = icu::Normalizer2::getNFCInstance(error);
      break;
    case NormalForm::kNfd:
      normalizer = icu::Normalizer2::getNFDInstance(error);
      break;
    case NormalForm::kNfkc:
      normalizer = icu::Normalizer2::getNFKCInstance(error);
      break;
    case NormalForm::kNfkd:
      normalizer = icu::Normalizer2::getNFKDInstance(error);
      break;
  }
  PITON_ASSERT(U_SUCCESS(error) && normalizer != nullptr, "ICU has no normal forms");
  return *normalizer;
}

bool in_unicode_9(char32_t c) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] != 0 && age[0] <= 9;
}

class NormalFormStep final : public Normalizer {
 public:
  explicit NormalFormStep(NormalForm form) : form_(&form_of(form)), inert_(kBadByte + 1, true) {
    // Characters that the form changes, alone or with a neighbor. Characters newer than Unicode 9.0
    // stay unchanged.
    for (UChar32 c = 0x80; c < 0x110000; ++c) {
      if (c == 0x3400) c = 0xA000;                   // ideographs: no form changes them
      if (c >= 0x323B0 && c < 0xE0000) c = 0xE0000;  // unassigned planes
      if (c >= 0xF0000) break;                       // private use
      if (!form_->isInert(c) && in_unicode_9(static_cast<char32_t>(c))) {
        inert_[static_cast<std::size_t>(c)] = false;
      }
    }
  }

  bool takes_any_bytes() const override { return true; }

  void apply(std::string& text) const override {
    std::size_t at = 0;
    std::size_t done = 0;  // the text before it is in `out`
    std::string out;
    while ((at = next_active(text, at)) < text.size()) {
      // A stretch of active characters and the ASCII character before it, which may compose with
      // them. Normalization does not cross the borders of the stretch.
      const bool ascii_before = at > done && static_cast<unsigned char>(text[at - 1]) < 0x80;
      const std::size_t begin = ascii_before ? at - 1 : at;
      std::size_t end = at;
      while (end < text.size()) {
        const Utf8Char c = decode_utf8(text, end);
        if (inert_[c.value]) break;
        end += c.length;
      }
      out.append(text, done, begin - done);
      UErrorCode error = U_ZERO_ERROR;
      icu::StringByteSink<std::string> sink(&out);
      form_->normalizeUTF8(0, {text.data() + begin, static_cast<std::int32_t>(end - begin)}, sink,
                           nullptr, error);
      PITON_ASSERT(U_SUCCESS(error));
      done = end;
      at = end;
    }
    if (done == 0) return;
    out.append(text, done);
    text = std::move(out);
  }

 private:
  std::size_t next_active(const std::string& text, std::size_t at) const {
    while (at < text.size()) {
      if (static_cast<unsigned char>(text[at]) < 0x80) {
        at = ascii_end(text, at);
        continue;
      }
      const Utf8Char c = decode_utf8(text, at);
      if (!inert_[c.value]) return at;
      at += c.length;
    }
    return text.size();
  }

  const icu::Normalizer2* form_;
  std::vector<bool> inert_;  // by character; true for kBadByte
};

}  // namespace

std::unique_ptr<Normalizer> make_normal_form(NormalForm form) {
  return std::make_unique<NormalFormStep>(form);
}

}  // namespace piton
