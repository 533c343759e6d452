// libpiton in C++: train, generate and score from a program.
//
//   libpiton::Engine engine;
//   libpiton::Trainer trainer(engine, {"--model", "gpt2-124m", "--data-path", "corpus", ...});
//   while (!trainer.done()) std::printf("%f\n", trainer.step().loss);
//   trainer.save();
//   trainer.finish();
//   libpiton::Model model(engine, "run");
//   std::cout << model.generate("Once upon a time", {"--max-new-tokens", "50"});
//
// Options are the words of the command line (`piton pretrain --help all`). Errors are thrown as
// libpiton::Error. This header needs C++17 and only uses the C interface (piton_c.h), so a program
// and the library may come from different compilers. For threads, callbacks and processes see
// piton_c.h; an exception thrown by a callback is passed on to the caller.
#pragma once

#include <piton/piton_c.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace libpiton {

class Error : public std::runtime_error {
 public:
  explicit Error(const piton_error& error) : std::runtime_error(error.message), code_(error.code) {}
  // The exit code that `piton` would have: 2 usage, 3 data, 4 memory, 5 diverged, 1 a defect.
  int code() const { return code_; }

 private:
  int code_;
};

using Words = std::vector<std::string>;

namespace detail {

template <typename Call>
void check(Call&& call) {
  piton_error error{};
  if (call(&error) != 0) throw Error(error);
}

// The words as the C interface takes them, for one call.
class CWords {
 public:
  explicit CWords(const Words& words) {
    for (const std::string& word : words) pointers_.push_back(word.c_str());
  }
  operator piton_words() const { return {pointers_.data(), pointers_.size()}; }

 private:
  std::vector<const char*> pointers_;
};

// Keeps what a callback of the program throws until the C function has returned.
class Caught {
 public:
  template <typename Work>
  int run(int result_of_failure, Work&& work) noexcept {
    try {
      return work();
    } catch (...) {
      thrown_ = std::current_exception();
      return result_of_failure;
    }
  }
  void rethrow() {
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
  }

 private:
  std::exception_ptr thrown_;
};

}  // namespace detail

using LogFunction = std::function<void(int level, const std::string& line)>;

class Engine {
 public:
  // `threads`: 0 for one thread per core of this process.
  explicit Engine(int threads = 0, LogFunction log = {})
      : log_(std::make_unique<LogFunction>(std::move(log))) {
    detail::check([&](piton_error* error) {
      return piton_engine_open(threads, nullptr, *log_ ? write : nullptr, log_.get(), &engine_,
                               error);
    });
  }
  // Close models and trainers first: their log lines go to this object's function.
  ~Engine() { piton_engine_close(engine_); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  piton_engine* get() const { return engine_; }

 private:
  static void write(void* user, int level, const char* line) {
    (*static_cast<LogFunction*>(user))(level, line);
  }
  std::unique_ptr<LogFunction> log_;
  piton_engine* engine_ = nullptr;
};

struct Token {
  std::int32_t id = 0;
  double log_probability = 0;
};

class Model {
 public:
  // `path`: the folder of a run, one checkpoint, or a Hugging Face folder.
  Model(const Engine& engine, const std::string& path, const Words& tokenizer = {}) {
    detail::check([&](piton_error* error) {
      return piton_model_load(engine.get(), path.c_str(), detail::CWords(tokenizer), &model_,
                              error);
    });
  }
  ~Model() { piton_model_close(model_); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  std::int64_t vocabulary_size() const { return piton_model_vocabulary_size(model_); }
  std::int64_t max_positions() const { return piton_model_max_positions(model_); }
  std::int64_t parameters() const { return piton_model_parameters(model_); }

  // `special`: with the special tokens that the tokenizer puts around a text.
  std::vector<std::int32_t> encode(std::string_view text, bool special = true) const {
    std::vector<std::int32_t> ids(text.size() + 8);
    for (;;) {
      std::size_t count = 0;
      detail::check([&](piton_error* error) {
        return piton_model_encode(model_, text.data(), text.size(), special ? 1 : 0, ids.data(),
                                  ids.size(), &count, error);
      });
      const bool whole = count <= ids.size();
      ids.resize(count);
      if (whole) return ids;
    }
  }
  std::string decode(const std::vector<std::int32_t>& ids) const {
    std::string text(ids.size() * 8 + 16, 0);
    for (;;) {
      std::size_t bytes = 0;
      detail::check([&](piton_error* error) {
        return piton_model_decode(model_, ids.data(), ids.size(), text.data(), text.size(), &bytes,
                                  error);
      });
      const bool whole = bytes <= text.size();
      text.resize(bytes);
      if (whole) return text;
    }
  }

  // Continues `prompt`. Calls `each` for every new token, with the text that it completes; `each`
  // returns false to end the text. If text is left at the end, a last call has id -1 and that text.
  std::vector<Token> generate(
      const std::vector<std::int32_t>& prompt, const Words& sampling,
      const std::function<bool(const Token&, std::string_view text)>& each) const {
    struct State {
      const std::function<bool(const Token&, std::string_view)>& each;
      std::vector<Token> tokens;
      detail::Caught caught;
    } state{each, {}, {}};
    const auto function = [](void* user, std::int32_t id, double log_probability, const char* text,
                             std::size_t bytes) {
      auto& to = *static_cast<State*>(user);
      return to.caught.run(0, [&] {
        const Token token{id, log_probability};
        if (id >= 0) to.tokens.push_back(token);
        return to.each(token, {text, bytes}) ? 1 : 0;
      });
    };
    detail::check([&](piton_error* error) {
      return piton_model_generate(model_, prompt.data(), prompt.size(), detail::CWords(sampling),
                                  function, &state, error);
    });
    state.caught.rethrow();
    return std::move(state.tokens);
  }
  // The text that continues `prompt`.
  std::string generate(std::string_view prompt, const Words& sampling = {}) const {
    std::string text;
    generate(encode(prompt), sampling, [&](const Token&, std::string_view piece) {
      text += piece;
      return true;
    });
    return text;
  }

  // [ids - 1]: log-likelihood of each token except the first, given the tokens before it.
  std::vector<double> score(const std::vector<std::int32_t>& ids) const {
    std::vector<double> score(ids.empty() ? 0 : ids.size() - 1);
    detail::check([&](piton_error* error) {
      return piton_model_score(model_, ids.data(), ids.size(), score.data(), error);
    });
    return score;
  }
  // [ids, vocabulary_size()]
  std::vector<float> logits(const std::vector<std::int32_t>& ids) const {
    std::vector<float> logits(ids.size() * static_cast<std::size_t>(vocabulary_size()));
    detail::check([&](piton_error* error) {
      return piton_model_logits(model_, ids.data(), ids.size(), logits.data(), error);
    });
    return logits;
  }

 private:
  piton_model* model_ = nullptr;
};

// Samples that the program provides, instead of --data-path.
struct Samples {
  std::int64_t count = 0;
  // Fills `ids` [length = sequence + 1] with sample `index`; the same index gives the same ids.
  std::function<void(std::int64_t index, std::int32_t* ids, std::int64_t length)> read;
  std::string name;  // identifies the data in checkpoints
  // Samples for --eval-iters: `count` to `count + validation_count - 1`.
  std::int64_t validation_count = 0;
};

class Trainer {
 public:
  Trainer(const Engine& engine, const Words& options) {
    detail::check([&](piton_error* error) {
      return piton_trainer_open(engine.get(), detail::CWords(options), nullptr, &trainer_, error);
    });
  }
  Trainer(const Engine& engine, const Words& options, Samples samples) {
    state_->samples = std::move(samples);
    const piton_samples given{state_->samples.count, read, state_.get(),
                              state_->samples.name.c_str(), state_->samples.validation_count};
    run([&](piton_error* error) {
      return piton_trainer_open(engine.get(), detail::CWords(options), &given, &trainer_, error);
    });
  }
  ~Trainer() { piton_trainer_close(trainer_); }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  bool done() const { return piton_trainer_done(trainer_) != 0; }
  bool save_due() const { return piton_trainer_save_due(trainer_) != 0; }
  std::int64_t iteration() const { return piton_trainer_iteration(trainer_); }
  std::int64_t sequence() const { return piton_trainer_sequence(trainer_); }

  piton_step step() {
    piton_step step{};
    run([&](piton_error* error) { return piton_trainer_step(trainer_, &step, error); });
    return step;
  }
  double evaluate() {
    double loss = 0;
    run([&](piton_error* error) { return piton_trainer_evaluate(trainer_, &loss, error); });
    return loss;
  }
  void save() {
    run([&](piton_error* error) { return piton_trainer_save(trainer_, error); });
  }
  void finish() {
    run([&](piton_error* error) { return piton_trainer_finish(trainer_, error); });
  }

 private:
  struct State {
    Samples samples;
    detail::Caught caught;
  };
  static int read(void* user, std::int64_t index, std::int32_t* ids, std::int64_t length) {
    auto& state = *static_cast<State*>(user);
    return state.caught.run(1, [&] {
      state.samples.read(index, ids, length);
      return 0;
    });
  }
  // If the program's samples have thrown, throws that exception, not the error that it causes.
  template <typename Call>
  void run(Call&& call) {
    piton_error error{};
    const int code = call(&error);
    state_->caught.rethrow();
    if (code != 0) throw Error(error);
  }

  piton_trainer* trainer_ = nullptr;
  std::unique_ptr<State> state_ = std::make_unique<State>();
};

}  // namespace libpiton
