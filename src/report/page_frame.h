// What all pages of `piton report` share: style, head, footer.
#pragma once

#include <string>
#include <string_view>

namespace piton {

// Colors of curves and of their keys: --c0 to --c7.
inline constexpr int kPageColors = 8;

// The page from its doctype to the end of the first heading. `head`: more tags for <head>.
std::string page_begin(const std::string& title, std::string_view head);
// `note`: what follows "made by piton report, ".
std::string page_end(const std::string& note);

// At most `most` bytes of UTF-8 text, whole characters, with " ..." where it was cut.
std::string text_beginning(const std::string& text, std::size_t most);

}  // namespace piton
