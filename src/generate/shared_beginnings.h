// Texts that wait until another one has read what they begin with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "generate/decoded_text.h"
#include "generate/kept_texts.h"

namespace piton {

// Texts that wait for the beginning of another and are passed over by later ones.
inline constexpr std::size_t kMostPassedOver = 64;

// Whether a text of this length has the angles of short ones, so that others can begin like it.
// Tokens of a prompt that see one another differ with all of it.
bool can_begin_others(const ModelConfig& config, std::int64_t length);

// How many tokens that `text` begins with, and needs no logits of, are of the first `most` of
// `other` too. 0 if that spares too little of its reading beyond the `known` ones.
std::int64_t shared_beginning(const DecodedText& text, const DecodedText& other, std::int64_t known,
                              std::int64_t most);

// Pauses a reading where its text is to be kept: where one that waits begins with it, and once
// before the end of a prompt of more than `prompt_tokens` tokens, since the next one of a
// conversation may differ at its end.
void plan_to_keep(DecodedText& text, TextReading& reading, const std::deque<DecodedText>& waiting,
                  const KeptTexts& kept, std::int64_t prompt_tokens);

}  // namespace piton
