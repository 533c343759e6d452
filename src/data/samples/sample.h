// One training sample: a row of s tokens, and what each of them teaches.
//
//   token    a    b    c    .    pad  pad
//   label   -100  c    .    -100 -100 -100     label[i] belongs to the token after tokens[i]
//   position 0    1    2    3    0    1
//   segment  0    0    0    0    -1   -1       a token attends only to tokens of its segment
//
// A label is already shifted: a model that reads tokens[0..i] is taught labels[i]. In samples of
// masked words (data/masked) it is not: labels[i] is what was at the place of tokens[i], or what
// follows decoder[i].
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace piton {

// A label that teaches nothing; the value that PyTorch's cross entropy ignores.
inline constexpr std::int32_t kNoLabel = -100;

// The label of the token from which a model says the number of a text: no id of its head.
inline constexpr std::int32_t kNumberLabel = 1;

// The segment of padding: no token of a text attends to it.
inline constexpr std::int32_t kPaddingSegment = -1;

// What an answer of preference data is to its question.
enum class AnswerRole : std::uint8_t {
  kChosen,       // followed by the answer that is worse than it
  kRejected,     // of the same pair
  kDesirable,    // judged alone; followed by the answer of another sample
  kUndesirable,  // the same
  kMismatched,   // the answer of another sample to the question of the one before
};

// Tokens [begin, end) are a question with one answer, whose tokens alone have labels.
struct Answer {
  AnswerRole role = AnswerRole::kChosen;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const Answer&) const = default;
};

struct Sample {
  std::vector<std::int32_t> tokens;     // [s]
  std::vector<std::int32_t> labels;     // [s]; kNoLabel where nothing is learned
  std::vector<std::int32_t> positions;  // [s]; from the start of the sample or of a document
  std::vector<std::int32_t> segments;   // [s], or empty: the sample is one segment
  std::int64_t length = 0;              // tokens that are not padding, which comes after them
  std::optional<float> target;          // the number of a text, whose token has kNumberLabel
  // Of texts with several labels: 1 for each label that the text has, else 0. Its token has label
  // 0, in a micro-batch the number of the sample in it.
  std::vector<std::uint8_t> label_set;
  // Of masked words only.
  std::vector<std::int32_t> types;    // BERT, [s]: 0 in the first part, 1 in the second
  std::optional<bool> swapped;        // BERT: the second part comes before the first in the text
  std::vector<std::int32_t> decoder;  // T5: tokens that the decoder reads; it has as many labels
  std::vector<std::int32_t> decoder_segments;  // T5: kPaddingSegment or 0, as many
  // Of preference data, in order: each kChosen is followed by its kRejected, each kDesirable or
  // kUndesirable by its kMismatched. Empty in other data.
  std::vector<Answer> answers;
};

}  // namespace piton
