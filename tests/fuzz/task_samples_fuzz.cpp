// libraries: piton_tasks
// Bytes as a file of questions: the first byte chooses the task and the format. Its samples are
// made, or it is refused with an Error.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "fuzz/scratch_files.h"
#include "tasks/task_samples.h"
#include "tasks/task_table.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using piton::Protocol;
  if (size == 0) return 0;
  constexpr std::array<std::string_view, 5> kNames = {"test.jsonl", "test.json", "test.csv",
                                                      "test.tsv", "test.txt"};
  const std::filesystem::path file = piton::scratch_folder() / kNames[data[0] % kNames.size()];
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(data) + 1, static_cast<std::streamsize>(size) - 1);
  const std::size_t choice = data[0] / kNames.size();
  const auto tasks =
      piton::built_in_tasks(choice % 2 == 0 ? Protocol::kLmEval : Protocol::kMindSpeed);
  try {
    piton::load_task(tasks[choice / 2 % tasks.size()], {.paths = {file.string()}, .num_shots = 0});
  } catch (const piton::Error&) {
  }
  std::filesystem::remove(file);
  return 0;
}
