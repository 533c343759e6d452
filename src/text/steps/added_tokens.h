// Tokens outside the model's vocabulary, which are cut out of a text before any other step: special
// tokens (<s>, <|im_end|>) and tokens added later.
//
// The leftmost, longest match counts. A `normalized` token is searched for in the normalized text,
// in its normalized spelling; other tokens in the raw text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace piton {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  // no word character may be next to it
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // and after it
  bool normalized = false;
  bool special = false;
};

// Throws Error(kData), beginning with `where`, if the token is longer than any piece may be, or its
// id is far outside a vocabulary of `pieces`.
void check_added_token(const AddedToken& token, std::int64_t pieces, const std::string& where);

// Finds one set of tokens in texts.
class AddedTokenMatcher {
 public:
  // A part of a text: a token, or (id -1) the text between tokens.
  struct Part {
    std::int32_t id = -1;
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  // `pattern`: the text to search for, the content or its normalized spelling. An empty pattern is
  // ignored.
  void add(const AddedToken& token, std::string_view pattern);

  // APPENDS the parts of `text`, in order, without gaps. Special tokens remain text unless
  // `parse_special`.
  void split(std::string_view text, bool parse_special, std::vector<Part>& parts) const;

  // True if split() can find anything.
  bool active(bool parse_special) const {
    return has_plain_ || (parse_special && !tokens_.empty());
  }

 private:
  struct Node {
    std::int32_t token = -1;  // index of the token whose pattern ends here
    std::vector<std::pair<unsigned char, std::int32_t>> children;
  };
  // Length and index of the longest pattern at the start of `text`; {0, -1} if none.
  std::pair<std::size_t, std::int32_t> longest(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::int32_t roots_[256] = {};  // child of the root by first byte, 0 where none
  bool has_plain_ = false;
};

}  // namespace piton
