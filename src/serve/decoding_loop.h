// The thread of the engine: takes texts to write from the threads of connections, computes pass
// after pass, and gives each its tokens.
//
// On several ranks run() is called by all of them. The first rank decides what the next turn does
// and sends it to the others, so that every rank makes the same calls of the engine; other
// functions are called on the first rank alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "generate/constraints/grammar_constraint.h"
#include "serve/served_model.h"

namespace piton {

struct TextToWrite {
  DecodingRequest request;  // without its constraint
  ConstraintText constraint;
  std::shared_ptr<const ByteGrammar> grammar;  // of `constraint`; null: none
};

// The texts of one request, and their tokens as they come. One thread reads.
class WritingJob {
 public:
  struct Event {
    std::size_t text = 0;  // index in the job
    GeneratedToken token;
    FinishReason finish = FinishReason::kNone;
    std::vector<GeneratedToken> scored;  // DecodingEvent::scored
    std::int64_t reused_tokens = 0;      // DecodingEvent::reused_tokens
  };
  virtual ~WritingJob() = default;  // cancels what is not finished
  // The next token; nullopt after `wait`. Throws RequestError if the engine refused the text or
  // has failed.
  virtual std::optional<Event> next(std::chrono::milliseconds wait) = 0;
  // No more tokens of this text are needed.
  virtual void cancel(std::size_t text) = 0;
};

struct LoopLimits {
  std::int64_t running = 8;   // texts that the engine has at the same time
  std::int64_t waiting = 64;  // texts that wait for a place
};

class DecodingLoop {
 public:
  // References must outlive the loop.
  DecodingLoop(ServedModel& model, Communicator& ranks, LoopLimits limits);
  ~DecodingLoop();
  DecodingLoop(const DecodingLoop&) = delete;
  DecodingLoop& operator=(const DecodingLoop&) = delete;

  // Until finish() was called and all texts are written. Throws what the engine throws; jobs get a
  // RequestError then.
  void run();
  // Any thread: new texts are refused; those that run or wait are written. A job that is cancelled
  // ends at once.
  void finish();

  // Any thread. Throws RequestError(429) if the queue has no place for all of them now,
  // RequestError(400) if it never has, and RequestError(503) after finish().
  std::unique_ptr<WritingJob> submit(std::vector<TextToWrite> texts);
  // Any thread: the one event of the job has, as `scored`, the likelihood of each token but the
  // first after those before it, with the `count` likeliest in its place; ids are two or more.
  // Throws as submit() does.
  std::unique_ptr<WritingJob> submit_to_score(std::vector<std::int32_t> ids, std::int64_t count,
                                              std::optional<std::int64_t> adapter);

  // Any thread: ServedModel::embed() between two passes, of as many texts as that takes at the same
  // time. Blocks. Throws RequestError.
  std::vector<std::vector<float>> embed(std::vector<TextToEmbed> texts);

  // Any thread. `waiting` has those without a place in the engine too.
  DecodingCounts counts() const;

 private:
  struct State;
  class Job;
  std::shared_ptr<State> state_;
};

}  // namespace piton
