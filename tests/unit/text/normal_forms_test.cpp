// Normal forms. Wanted: normalizers.NFC, NFD, NFKC and NFKD of tokenizers 0.23.3.
#include <gtest/gtest.h>

#include <string>

#include "text/steps/normalizers.h"

namespace piton {
namespace {

std::string in_form(NormalForm form, std::string text) {
  make_normal_form(form)->apply(text);
  return text;
}

TEST(NormalForms, LeaveCharactersAfterUnicode9Unchanged) {
  const std::string reiwa = "\u32ff";          // Unicode 12.1: two characters in NFKC and NFKD
  const std::string trademark = "\U0001f16c";  // Unicode 12: "MR"
  for (const NormalForm form :
       {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc, NormalForm::kNfkd}) {
    EXPECT_EQ(in_form(form, reiwa), reiwa);
    EXPECT_EQ(in_form(form, trademark), trademark);
  }
  EXPECT_EQ(in_form(NormalForm::kNfc, "a" + reiwa + "e\u0301"), "a" + reiwa + "\u00e9");
  EXPECT_EQ(in_form(NormalForm::kNfkc, "\ufb01\u2126"), "fi\u03a9");
}

TEST(NormalForms, KeepBytesThatAreNoCharacter) {
  EXPECT_EQ(in_form(NormalForm::kNfc,
                    "e\u0301\xFF"
                    "e\u0301\xE2\x82"),
            "\u00e9\xFF\u00e9\xE2\x82");
  EXPECT_EQ(in_form(NormalForm::kNfkd, "\xFF\u00e9"),
            "\xFF"
            "e\u0301");
}

}  // namespace
}  // namespace piton
