// Helpers for tests that use a Trainer: a machine of one rank, a small corpus, options, and a sink
// that records its events.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/corpus/indexed_dataset.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "support/instruction_sets.h"
#include "train/trainer.h"

namespace piton::test {

// One rank of `world`, on the host.
class SmallMachine {
 public:
  explicit SmallMachine(World& world, int threads = 1)
      : pool_(threads),
        kernels_(make_cpu_kernels(pool_, test::chosen_isa())),
        arena_(device_),
        stream_(device_.make_stream()),
        machine_{world, device_, *kernels_, arena_, *stream_, pool_, log_} {}
  const Machine& machine() const { return machine_; }

 private:
  HostDevice device_;
  SilentLog log_;
  ThreadPool pool_;
  std::unique_ptr<Kernels> kernels_;
  Arena arena_;
  std::unique_ptr<Stream> stream_;
  Machine machine_;
};

// `documents` of 40 ids below 200, without a tokenizer. Ids depend only on their place and `salt`.
inline void write_small_corpus(const std::filesystem::path& prefix, int documents = 60,
                               int salt = 0) {
  IndexedWriter writer(prefix.string(), IdType::kUint16);
  for (int document = 0; document < documents; ++document) {
    std::vector<std::int32_t> ids;
    for (int place = 0; place < 40; ++place) {
      ids.push_back((document * 7 + place * place + salt) % 199);
    }
    writer.add_sequence(ids);
    writer.end_document();
  }
  writer.finish();
}

// The options of `piton pretrain` for a tiny model on that corpus, and those in `more`.
inline PretrainOptions small_options(const std::filesystem::path& prefix,
                                     const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{"--model",
                                 "llama-tiny",
                                 "--data-path",
                                 prefix.string(),
                                 "--seq-length",
                                 "16",
                                 "--micro-batch-size",
                                 "2",
                                 "--vocab-size",
                                 "200",
                                 "--split",
                                 "80,20,0",
                                 "--eval-iters",
                                 "2",
                                 "--global-batch-size",
                                 "4",
                                 "--eval-interval",
                                 "1000",
                                 "--train-iters",
                                 "6",
                                 "--lr",
                                 "1e-3",
                                 "--hidden-dropout",
                                 "0.1"};
  words.insert(words.end(), more.begin(), more.end());
  PretrainOptions options;
  OptionSet set;
  options.add_to(set);
  set.parse(words);
  return options;
}

class EventSink final : public RunSink {
 public:
  void on_message(LogLevel level, std::string_view line) override {
    messages.push_back((level == LogLevel::kWarning ? "warning: " : "") + std::string(line));
  }
  void on_start(const RunStart& start) override {
    started = start;
    events.push_back(fmt::format("start {}", start.iteration));
  }
  void on_part(const RunPart& part) override {
    const std::string event =
        part.evaluation > 0
            ? fmt::format("evaluation {} after {}", part.evaluation, part.iteration)
            : fmt::format("{} of {}", part.pass == Pass::kForward ? "forward" : "backward",
                          part.iteration);
    if (events.back() != event) events.push_back(event);
  }
  void on_step(const StepMetrics& metrics) override {
    events.push_back(fmt::format("step {}", metrics.iteration));
    losses.push_back(metrics.lm_loss);
  }
  void on_validation(const RunValidation& validation) override {
    const bool tests = validation.set == HeldOutSet::kTest;
    events.push_back(fmt::format("{} {}", tests ? "test" : "validation", validation.iteration));
  }
  void on_save(const RunSave& save) override {
    events.push_back(fmt::format("save {}", save.iteration));
    saves.push_back(save);
  }
  void on_finish() override { events.push_back("finish"); }

  RunStart started;
  std::vector<std::string> events;
  std::vector<std::string> messages;
  std::vector<double> losses;
  std::vector<RunSave> saves;
};

}  // namespace piton::test
