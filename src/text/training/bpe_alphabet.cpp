#include "text/training/bpe_alphabet.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "text/unicode/byte_level.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

// The characters that spell each byte.
std::vector<char32_t> byte_characters() {
  const ByteAlphabet alphabet;
  std::vector<char32_t> characters;
  for (int byte = 0; byte < 256; ++byte) {
    const auto one = static_cast<char>(byte);
    characters.push_back(decode_utf8(alphabet.spell({&one, 1}), 0).value);
  }
  return characters;
}

// Calls use(character) for each character of a word.
template <typename Use>
void each_character(std::string_view word, const std::vector<char32_t>& of_byte, Use&& use) {
  if (!of_byte.empty()) {
    for (const char byte : word) use(of_byte[static_cast<unsigned char>(byte)]);
    return;
  }
  for (std::size_t at = 0; at < word.size();) {
    const Utf8Char c = decode_utf8(word, at);
    use(c.value);
    at += c.length;
  }
}

std::string utf8_of(char32_t c) {
  std::string text;
  append_utf8(c, text);
  return text;
}

// The characters to start from, by code point.
std::set<char32_t> alphabet_of(std::span<const CountedWord> words, const BpeTraining& training,
                               const std::vector<char32_t>& of_byte) {
  if (training.byte_level) return {of_byte.begin(), of_byte.end()};
  std::vector<std::int64_t> counts(128, 0);  // by code point
  for (const CountedWord& word : words) {
    each_character(word.text, of_byte, [&](char32_t c) {
      if (c >= counts.size()) counts.resize(c + 1, 0);
      counts[c] += word.count;
    });
  }
  std::vector<std::pair<std::int64_t, char32_t>> by_count;
  for (char32_t c = 0; c < counts.size(); ++c) {
    if (counts[c] > 0) by_count.emplace_back(-counts[c], c);
  }
  std::sort(by_count.begin(), by_count.end());
  if (training.limit_alphabet && *training.limit_alphabet < std::ssize(by_count)) {
    by_count.resize(static_cast<std::size_t>(*training.limit_alphabet));
  }
  std::set<char32_t> alphabet;
  for (const auto& [count, c] : by_count) alphabet.insert(c);
  return alphabet;
}

// Ids of characters by code point; -1 where the alphabet has none.
class CharacterIds {
 public:
  void set(char32_t c, std::int32_t id) {
    if (c >= ids_.size()) ids_.resize(c + 1, -1);
    ids_[c] = id;
  }
  std::int32_t at(char32_t c) const { return c < ids_.size() ? ids_[c] : -1; }

 private:
  std::vector<std::int32_t> ids_;
};

// The characters of the alphabet that occur after the first character of a word. A first character
// counts as the first even if it is not in the alphabet, as in the `tokenizers` library.
std::set<char32_t> continuing_characters(std::span<const CountedWord> words,
                                         const std::vector<char32_t>& of_byte,
                                         const CharacterIds& known) {
  std::set<char32_t> found;
  for (const CountedWord& word : words) {
    bool first = true;
    each_character(word.text, of_byte, [&](char32_t c) {
      if (!std::exchange(first, false) && known.at(c) >= 0) found.insert(c);
    });
  }
  return found;
}

}  // namespace

std::int32_t GrowingVocabulary::add(std::string piece) {
  const auto [found, is_new] = ids_.emplace(piece, static_cast<std::int32_t>(pieces_.size()));
  if (is_new) pieces_.push_back(std::move(piece));
  return found->second;
}

SymbolWords spell_words(std::span<const CountedWord> words, const BpeTraining& training,
                        GrowingVocabulary& vocabulary) {
  const std::vector<char32_t> of_byte =
      training.byte_level ? byte_characters() : std::vector<char32_t>{};
  for (const std::string& piece : training.first_pieces) vocabulary.add(piece);
  const std::int64_t first_pieces = vocabulary.size();
  CharacterIds first_ids;
  for (const char32_t c : alphabet_of(words, training, of_byte)) {
    first_ids.set(c, vocabulary.add(utf8_of(c)));
  }
  CharacterIds later_ids = first_ids;
  if (!training.continuing_prefix.empty()) {
    for (const char32_t c : continuing_characters(words, of_byte, first_ids)) {
      later_ids.set(c, vocabulary.add(training.continuing_prefix + utf8_of(c)));
    }
  }
  if (vocabulary.size() > training.vocabulary_size) {
    throw Error(Fault::kUsage,
                "--vocab-size: got {}, wanted at least {}: {} special tokens and bytes and {} "
                "characters; raise it, or leave out rare characters with --limit-alphabet",
                training.vocabulary_size, vocabulary.size(), first_pieces,
                vocabulary.size() - first_pieces);
  }
  SymbolWords spelled;
  spelled.begins.reserve(words.size());
  spelled.lengths.reserve(words.size());
  spelled.counts.reserve(words.size());
  for (const CountedWord& word : words) {
    const std::size_t begin = spelled.symbols.size();
    bool first = true;
    each_character(word.text, of_byte, [&](char32_t c) {
      const std::int32_t id = (std::exchange(first, false) ? first_ids : later_ids).at(c);
      if (id >= 0) spelled.symbols.push_back(id);
    });
    spelled.begins.push_back(begin);
    spelled.lengths.push_back(static_cast<std::uint32_t>(spelled.symbols.size() - begin));
    spelled.counts.push_back(word.count);
  }
  return spelled;
}

}  // namespace piton
