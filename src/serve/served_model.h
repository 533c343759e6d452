// What the server uses of a model: its engine, its tokenizer, its chat template.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "generate/decoding_engine.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer.h"

namespace piton {

struct TextToEmbed {
  std::vector<std::int32_t> ids;
  std::optional<std::int64_t> adapter;  // DecodingRequest::adapter
  std::vector<std::int32_t> types;      // of a classifier, of each id; empty: all 0

  bool operator==(const TextToEmbed&) const = default;
};

class ServedModel {
 public:
  virtual ~ServedModel() = default;

  // By any thread, at the same time.
  virtual const std::string& name() const = 0;
  // The names of adapters that requests choose, in the order of DecodingRequest::adapter.
  virtual const std::vector<std::string>& adapters() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  virtual std::int64_t vocabulary() const = 0;
  virtual std::int64_t longest_sequence() const = 0;
  // Ids that end every text.
  virtual const std::vector<std::int32_t>& ends() const = 0;
  virtual std::vector<std::int32_t> encode_prompt(const std::string& text) const = 0;
  // A reward model: it writes no texts, and embed() gives the reward of a text, one number.
  virtual bool gives_rewards() const = 0;
  // The names of the labels of a classifier: it writes no texts, and embed() gives the logits of
  // them. One: the number of a text or a pair. Empty: the model is none.
  virtual const std::vector<std::string>& labels() const = 0;
  // The probability of a label does not depend on the others: a text may have several.
  virtual bool several_labels() const = 0;
  // What a classifier reads of a text and its pair, as it was trained: the longer one is cut where
  // both are too long. Throws Error(kData) for a text without tokens.
  virtual TextToEmbed read_text(const std::string& text,
                                const std::optional<std::string>& pair) const = 0;
  // Texts that embed() computes together; others wait in the meantime.
  std::size_t texts_together() const { return labels().empty() ? 1 : 64; }
  // The template for conversations with or without tools; null if there is none.
  virtual const ChatTemplate* chat_template(bool with_tools) const = 0;

  // Called only by the engine's thread. Collective on several ranks, like the engine's calls.
  virtual DecodingEngine& engine() = 0;
  // A vector for each text, as fp32. Throws Error(kUsage) for ids outside the vocabulary and for
  // too many.
  virtual std::vector<std::vector<float>> embed(std::span<const TextToEmbed> texts) = 0;

  // The name by which requests choose this adapter, or the model without one.
  const std::string& name_of(std::optional<std::int64_t> adapter) const {
    return adapter ? adapters().at(static_cast<std::size_t>(*adapter)) : name();
  }
};

}  // namespace piton
