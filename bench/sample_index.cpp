// How long it takes to make the runs of sentences of which samples of BERT and T5 are made.
//
//   sample_index CORPUS LONGEST P SEED LEAST [OUTPUT]
//
// of all documents of a corpus, for one epoch (data/masked/sentence_spans.h). Prints one line of
// JSON: seconds of the clock and of the processors to open the corpus, with and without the checks
// of its index, and to make the spans. Writes them to OUTPUT, int64 [spans, 3]: the first sentence,
// the one after the last, and the target. bench/compare/sample_index.py compares them with
// Megatron's.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/files.h"
#include "data/masked/sentence_spans.h"

namespace {

using namespace piton;  // NOLINT: a program of one file

struct Times {
  double wall = 0;
  double processor = 0;  // of all threads
};

template <typename Work>
Times time_of(Work&& work) {
  const auto processor = [] {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  const double processor_before = processor();
  const auto before = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - before;
  return {wall.count(), processor() - processor_before};
}

void run(const std::vector<std::string>& arguments) {
  SentenceRequest request{.longest = std::stoll(arguments[1]),
                          .short_probability = std::stod(arguments[2]),
                          .seed = static_cast<std::uint32_t>(std::stoul(arguments[3])),
                          .least_sentences = std::stoll(arguments[4])};
  const Times checked = time_of([&] { IndexedDataset::open(arguments[0]); });
  std::optional<IndexedDataset> corpus;
  const Times opened = time_of(
      [&] { corpus.emplace(IndexedDataset::open(arguments[0], IndexedDataset::Check::kHeader)); });
  request.end = corpus->documents();
  SentenceSpans made;
  const Times built = time_of([&] { made = make_sentence_spans(*corpus, request); });
  fmt::print(
      "{{\"spans\": {}, \"open_checked\": [{}, {}], \"open\": [{}, {}], \"build\": [{}, {}]}}\n",
      made.spans.size(), checked.wall, checked.processor, opened.wall, opened.processor, built.wall,
      built.processor);
  if (arguments.size() < 6) return;
  std::vector<std::int64_t> values;
  for (const SentenceSpan& span : made.spans)
    values.insert(values.end(), {span.first, span.first + span.count, span.target});
  write_text_file(arguments[5], {reinterpret_cast<const char*>(values.data()), values.size() * 8});
}

}  // namespace

int main(int count, char** values) {
  const std::vector<std::string> arguments(values + 1, values + count);
  if (arguments.size() < 5 || arguments.size() > 6) {
    std::fputs("usage: sample_index CORPUS LONGEST P SEED LEAST [OUTPUT]\n", stderr);
    return EXIT_FAILURE;
  }
  try {
    run(arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "sample_index: {}\n", error.what());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
