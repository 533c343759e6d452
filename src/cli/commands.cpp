// The table of commands. A new command is one file and two lines here.
#include "cli/command.h"

namespace piton::cli {

int run_bench(Invocation& invocation);
int run_generate(Invocation& invocation);
int run_help(Invocation& invocation);
int run_inspect(Invocation& invocation);
int run_plan(Invocation& invocation);
int run_preprocess(Invocation& invocation);
int run_pretrain(Invocation& invocation);
int run_score(Invocation& invocation);
int run_tokenize(Invocation& invocation);

std::span<const Command> commands() {
  static constexpr Command kCommands[] = {
      {"preprocess", "--input PATH ... --output-prefix PREFIX", "turns raw files into token files",
       run_preprocess},
      {"tokenize", "--tokenizer-name-or-path DIR [FILE]", "text to token ids and back",
       run_tokenize},
      {"pretrain", "[RECIPE.toml] [OPTION ...]", "trains a model on token files", run_pretrain},
      {"generate", "--load DIR --prompt TEXT", "continues a prompt", run_generate},
      {"score", "--load DIR FILE", "how likely a model finds a text", run_score},
      {"plan", "[RECIPE.toml] [OPTION ...]", "memory and traffic of a layout, before it runs",
       run_plan},
      {"inspect", "PATH | RECIPE.toml | samples | layout [OPTION ...]",
       "a checkpoint, corpus, tokenizer, recipe or training samples in words", run_inspect},
      {"bench",
       "train|gemm|attention|optimizer|decode|prefill|tokenizer|preprocess [RECIPE.toml] [OPTION "
       "...]",
       "how close to the machine's limits the work runs", run_bench},
      {"help", "[COMMAND]", "how a command is used", run_help},
  };
  return kCommands;
}

}  // namespace piton::cli
