// Trains a small model on the bytes of a file, from memory: no corpus is written.
//
//   train TEXT_FILE FOLDER [ITERATIONS]
#include <piton/piton.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

int main(int count, char** words) try {
  if (count < 3) {
    std::fprintf(stderr, "train TEXT_FILE FOLDER [ITERATIONS]\n");
    return 2;
  }
  std::ifstream file(words[1], std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  constexpr std::int64_t kSequence = 64;
  const auto size = static_cast<std::int64_t>(text.size());
  if (size <= kSequence) {
    std::fprintf(stderr, "%s: got %zu bytes, wanted more than %d\n", words[1], text.size(),
                 static_cast<int>(kSequence));
    return 3;
  }

  // Sample i is a piece of the text at a place that depends on i alone.
  const libpiton::Samples samples{
      1'000'000,
      [&](std::int64_t index, std::int32_t* ids, std::int64_t length) {
        const std::int64_t begin = index * 7919 % (size - length + 1);
        for (std::int64_t i = 0; i < length; ++i) {
          ids[i] = static_cast<unsigned char>(text[static_cast<std::size_t>(begin + i)]);
        }
      },
      words[1]};

  libpiton::Engine engine(0, [](int level, const std::string& line) {
    if (level >= PITON_LOG_WARNING) std::fprintf(stderr, "%s\n", line.c_str());
  });
  libpiton::Trainer trainer(engine,
                            {"--model", "llama-tiny", "--tokenizer-type", "ByteTokenizer",
                             "--seq-length", std::to_string(kSequence), "--micro-batch-size", "8",
                             "--lr", "3e-3", "--lr-decay-style", "constant", "--train-iters",
                             count > 3 ? words[3] : "100", "--save", words[2], "--load", words[2]},
                            samples);
  while (!trainer.done()) {
    const piton_step step = trainer.step();
    std::printf("%lld: loss %.4f\n", static_cast<long long>(step.iteration), step.loss);
    if (trainer.save_due()) trainer.save();
  }
  trainer.finish();
  return 0;
} catch (const libpiton::Error& error) {
  std::fprintf(stderr, "train: %s\n", error.what());
  return error.code();
}
