// Any bytes as a configuration file: read, or refused with an Error; options that were read can be
// written and read again unchanged.

#include <cstdint>

#include "base/error.h"
#include "base/options/options.h"

namespace {

struct Values {
  bool flag = false;
  int count = 0;
  std::uint64_t seed = 0;
  double rate = 0;
  std::string text;
  std::vector<std::string> texts;
  std::vector<double> numbers;
  std::optional<std::int64_t> window;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(piton::Option{"flag", "flag", {.negation = "no-flag"}}, flag);
    v(piton::Option{"count", "count"}, count);
    v(piton::Option{"seed", "seed"}, seed);
    v(piton::Option{"rate", "rate"}, rate);
    v(piton::Option{"text", "text"}, text);
    v(piton::Option{"texts", "texts"}, texts);
    v(piton::Option{"numbers", "numbers"}, numbers);
    v(piton::Option{"window", "window"}, window);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Values first;
  piton::OptionSet read;
  read.add("Fuzz", first);
  try {
    read.read_toml_text({reinterpret_cast<const char*>(data), size}, "fuzz.toml");
  } catch (const piton::Error&) {
    return 0;
  }
  const std::string text = read.to_toml();
  Values second;
  piton::OptionSet again;
  again.add("Fuzz", second);
  again.read_toml_text(text, "again.toml");
  PITON_ASSERT(again.to_toml() == text);
  return 0;
}
