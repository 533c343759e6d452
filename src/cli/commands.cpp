// The table of commands. A new command is one file and two lines here.
#include "cli/command.h"

namespace piton::cli {

int run_bench(Invocation& invocation);
int run_bench_parallel(Invocation& invocation);
int run_bench_tokenizer(Invocation& invocation);
int run_bench_preprocess(Invocation& invocation);
int run_chat(Invocation& invocation);
int run_classify(Invocation& invocation);
int run_convert(Invocation& invocation);
int run_doctor(Invocation& invocation);
int run_embed(Invocation& invocation);
int run_eval(Invocation& invocation);
int run_finetune(Invocation& invocation);
int run_generate(Invocation& invocation);
int run_help(Invocation& invocation);
int run_inspect(Invocation& invocation);
int run_launch(Invocation& invocation);
int run_plan(Invocation& invocation);
int run_preprocess(Invocation& invocation);
int run_pretrain(Invocation& invocation);
int run_quantize(Invocation& invocation);
int run_report(Invocation& invocation);
int run_resume(Invocation& invocation);
int run_score(Invocation& invocation);
int run_serve(Invocation& invocation);
int run_tokenize(Invocation& invocation);
int run_train_tokenizer(Invocation& invocation);

namespace {

constexpr Command kCommands[] = {
    {"train-tokenizer", "--input PATH ... --save DIR", "learns a tokenizer from raw files",
     "--input '*.jsonl.zst' --vocab-size 32000 --save tokenizer\n"
     "--input books --algorithm unigram --vocab-size 16k --special-tokens '<pad>' '</s>' '<unk>' "
     "--save tokenizer",
     "input json-keys sample-by algorithm vocab-size min-frequency pre-tokenizer normalizer "
     "special-tokens save overwrite on-error config threads",
     run_train_tokenizer},
    {"preprocess", "--input PATH ... --output-prefix PREFIX", "turns raw files into token files",
     "--input book.txt --tokenizer-type ByteTokenizer --append-eod --output-prefix corpus\n"
     "--input '*.jsonl.zst' --json-keys text --tokenizer-name-or-path DIR --workers 8 "
     "--output-prefix corpus\n"
     "--input alpaca.json --tokenizer-name-or-path DIR --prompt-type qwen --output-prefix alpaca",
     "input json-keys sample-by append-eod output-prefix workers on-error overwrite merge "
     "handler-name prompt-type seq-length pack tokenizer-type tokenizer-name-or-path config",
     run_preprocess},
    {"tokenize", "--tokenizer-name-or-path DIR [FILE]", "converts text to token ids and back",
     "--tokenizer-name-or-path DIR --pieces book.txt\n"
     "--tokenizer-name-or-path DIR --decode ids.txt",
     "", run_tokenize},
    {"pretrain", "[RECIPE.toml] [OPTION ...]", "trains a model on token files",
     "recipes/demo.toml --data-path corpus_text_document --save run\n"
     "--model gpt2-124m --bf16 --tokenizer-name-or-path DIR --data-path corpus_text_document "
     "--seq-length 1024 --micro-batch-size 4 --global-batch-size 32 --train-iters 1000 "
     "--lr 6e-4 --save run --load run",
     "model model-family num-layers hidden-size num-attention-heads max-position-embeddings bf16 "
     "micro-batch-size global-batch-size seq-length train-iters seed save load save-interval "
     "log-interval eval-interval eval-iters finetune tensor-model-parallel-size "
     "pipeline-model-parallel-size zero-stage lr min-lr lr-decay-style lr-warmup-iters optimizer "
     "weight-decay clip-grad data-path split tokenizer-type tokenizer-name-or-path config "
     "threads",
     run_pretrain},
    {"finetune", "--load MODEL --data-path PREFIX_OR_FILE --save RUN",
     "trains a model that exists on questions and answers, or on preferences",
     "--load HF_FOLDER --data-path chats --seq-length 1024 --micro-batch-size 4 "
     "--global-batch-size 16 --train-iters 500 --lr 1e-5 --bf16 --save run\n"
     "--load HF_FOLDER --lora-target-modules all-linear --lora-r 16 --lora-alpha 32 "
     "--data-path chats --seq-length 1024 --train-iters 500 --lr 2e-4 --bf16 --save run\n"
     "--load HF_FOLDER --lora-target-modules all-linear --stage dpo --data-path pairs "
     "--seq-length 1024 --train-iters 200 --lr 5e-6 --bf16 --save run",
     "load save lora-target-modules lora-r lora-alpha lora-dropout use-dora lora-load stage "
     "ref-model teacher-model distillation-temperature distillation-weight "
     "data-path split "
     "is-instruction-dataset pack neat-pack seq-length micro-batch-size global-batch-size "
     "train-iters lr min-lr lr-decay-style lr-warmup-iters optimizer weight-decay clip-grad bf16 "
     "seed save-interval log-interval eval-interval eval-iters tensor-model-parallel-size "
     "pipeline-model-parallel-size zero-stage tokenizer-name-or-path config threads",
     run_finetune},
    {"resume", "RUN [OPTION ...]", "continues a run that was interrupted, or goes further",
     "run\n"
     "run --train-iters 2000 --override-opt_param-scheduler",
     "train-iters train-samples override-opt_param-scheduler save save-interval log-interval "
     "eval-interval eval-iters allow-fallback data-path threads",
     run_resume},
    {"launch", "[OPTION ...] N COMMAND ...", "starts several ranks of a command on this machine",
     "2 pretrain recipes/demo.toml --data-path corpus_text_document --save run\n"
     "--nnodes 2 --node-rank 0 --master-addr HOST 4 pretrain run.toml --save run",
     "", run_launch},
    {"generate", "--load DIR --prompt TEXT", "continues a prompt",
     "--load run --prompt \"Once upon a time\" --temperature 0.8 --top-k 40\n"
     "--load run --greedy --max-new-tokens 20 < prompt.txt",
     "load prompt prompt-file prompts max-new-tokens greedy temperature top-k top-p min-p "
     "repetition-penalty seed num-samples num-beams stop "
     "logprobs stream json",
     run_generate},
    {"chat", "--load DIR", "talks with a model, by its chat template",
     "--load run\n"
     "--load HF_FOLDER --system \"You answer in one sentence.\" --temperature 0.7",
     "load lora-load system chat-template history-turns stop max-new-tokens greedy temperature "
     "top-k top-p seed",
     run_chat},
    {"serve", "--load DIR", "answers requests over HTTP, as OpenAI's service does",
     "--load run\n"
     "--load HF_FOLDER --port 8000 --api-key-file key.txt --max-concurrent-requests 16",
     "load lora-load host port api-key-file ssl-certfile ssl-keyfile served-model-name "
     "chat-template "
     "max-concurrent-requests max-waiting-requests max-new-tokens request-timeout-seconds threads",
     run_serve},
    {"score", "--load DIR FILE", "computes how likely a text is for a model",
     "--load run book.txt\n"
     "--load run valid.jsonl --json-keys text",
     "load json-keys ids-file json", run_score},
    {"classify", "--load DIR FILE", "gives each text of a file its label, by a classifier",
     "--load run lines.txt\n"
     "--load run --metrics test.jsonl",
     "load lora-load map-keys metrics seq-length tokenizer-name-or-path", run_classify},
    {"embed", "--load DIR --output F.safetensors FILE",
     "turns each line of a file into a vector, by an encoder",
     "--load bert --output vectors.safetensors lines.txt\n"
     "--load bert --pooling first --normalize --output vectors.npy -",
     "load output pooling normalize tokenizer-name-or-path", run_embed},
    {"eval", "--load DIR --task TASK ... --task-data-path PATH ...",
     "measures how well a model answers the questions of a task",
     "--load run --task hellaswag --task-data-path hellaswag\n"
     "--load run --task mmlu gsm8k --task-data-path data --save-results results\n"
     "--load run --task humaneval --task-data-path HumanEval.jsonl.gz --allow-code-execution",
     "load lora-load task task-data-path protocol num-shots max-eval-samples batch-size "
     "save-results json",
     run_eval},
    {"convert", "--load DIR --save DIR", "converts a model to another format and verifies it",
     "--load run --save run-hf\n"
     "--load run-hf --save run-bf16 --to hf --params-dtype bf16 --max-shard-size 2G",
     "", run_convert},
    {"quantize", "--load MODEL --weights FORMAT --save OUT",
     "writes a model whose matrices have 8 bits a weight or fewer",
     "--load run --weights q4_k --save run-q4_k.gguf --evaluate valid.txt\n"
     "--load run --weights int4 --save run-int4 --method gptq --calibration train.txt",
     "", run_quantize},
    {"plan", "[RECIPE.toml] [OPTION ...]", "computes memory and traffic of a layout",
     "--model llama2-7b --bf16 --tensor-model-parallel-size 8 --micro-batch-size 1\n"
     "--simulate zb-h1 --stages 4 --micro-batches 8",
     "simulate stages micro-batches world-size model bf16 seq-length micro-batch-size "
     "global-batch-size tensor-model-parallel-size pipeline-model-parallel-size zero-stage "
     "recompute-granularity json config device-memory layouts",
     run_plan},
    {"inspect", "PATH | RECIPE.toml | samples | layout [OPTION ...]",
     "describes a checkpoint, corpus, tokenizer, recipe, layout or samples",
     "run\n"
     "samples --data-path corpus_text_document --seq-length 64 --tokenizer-type ByteTokenizer",
     "hash loss json count first part scan-ids world-size data-path split seq-length "
     "tokenizer-type "
     "tokenizer-name-or-path config",
     run_inspect},
    {"report", "DIR ...", "writes an HTML page about runs, or about results of piton eval",
     "run\n"
     "runs/a runs/b --output compare.html --follow\n"
     "results/base results/tuned --output compare.html",
     "", run_report},
    {"bench",
     "train|gemm|attention|optimizer|decode|prefill|checkpoint|comm|parallel|tokenizer|preprocess "
     "[RECIPE.toml] [OPTION ...]",
     "measures speed, and compares it with the limits of the machine",
     "train --model gpt2-124m --bf16 --seq-length 256\n"
     "tokenizer --tokenizer-name-or-path DIR --input book.txt",
     "", run_bench},
    {"doctor", "[--json]", "checks what Piton can use on this machine, and how to fix the rest",
     "--json", "", run_doctor},
    {"help", "[COMMAND]", "shows how to use a command", "pretrain\n--megatron", "", run_help},
};

constexpr Command kOtherBenches[] = {
    {"bench parallel", "[RECIPE.toml] [OPTION ...]",
     "measures steps of parallel layouts on this machine's ranks, next to one process and the plan",
     "--model gpt2-124m --bf16 --seq-length 1024 --micro-batch-size 4 --world-size 2\n"
     "--model llama-tiny --layouts dp tp-sp pp --rounds 1",
     "world-size layouts steps pipeline-micro-batches rounds json model bf16 seq-length "
     "micro-batch-size global-batch-size config threads",
     run_bench_parallel},
    {"bench tokenizer", "[OPTION ...]", "measures how many MB of text a tokenizer reads per second",
     "--tokenizer-name-or-path DIR --input book.txt\n"
     "--tokenizer-name-or-path DIR --made-text random-letters",
     "", run_bench_tokenizer},
    {"bench preprocess", "[OPTION ...]",
     "measures how many MB of text become token files per second",
     "--tokenizer-name-or-path DIR --input 'texts/*.jsonl'", "", run_bench_preprocess},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

std::span<const Command> benches_with_own_options() { return kOtherBenches; }

}  // namespace piton::cli
