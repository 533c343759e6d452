// Functions of Python's str over UTF-8: positions and lengths count characters, classes and cases
// are Unicode's. Texts are well-formed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace piton::jinja {

std::int64_t character_count(std::string_view text);
std::vector<std::string_view> characters(std::string_view text);
// The byte at which character `index` begins; the end if there are fewer. `index` >= 0.
std::size_t byte_of(std::string_view text, std::int64_t index);

// str.isspace() of a character, \s of regular expressions.
bool is_space(char32_t c);

enum class Side { kLeft, kRight, kBoth };
// Removes white space, or the characters of `chars`.
std::string_view strip(std::string_view text, Side side,
                       std::optional<std::string_view> chars = std::nullopt);

// `separator` is not empty; `most` cuts, or all if negative. `from_right`: the last ones count.
std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    std::int64_t most, bool from_right);
// At runs of white space.
std::vector<std::string_view> split_words(std::string_view text, std::int64_t most,
                                          bool from_right);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

// The first `most` occurrences, or all if negative. An empty `from` is between all characters.
std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    std::int64_t most);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string title(std::string_view text);
std::string capitalize(std::string_view text);
std::string swap_case(std::string_view text);

// str.isalpha() and so on, by the name: "isalpha", "isupper", ... nullopt for other names.
std::optional<bool> is_class(std::string_view name, std::string_view text);

// Whether repr() shows the character as it is.
bool is_printable(char32_t c);

}  // namespace piton::jinja
