/* libpiton in C: train, generate and score from a program. Also what the C++ header (piton.h) and
   the Python package call.

   Options are words of the command line: {"--model", "gpt2-124m", "--bf16"} means the same to
   piton_trainer_open() as to `piton pretrain`, and `piton COMMAND --help all` lists them.

   Errors: a function that returns int returns 0, or the exit code that `piton` would have (2 usage,
   3 data, 4 memory, 5 diverged, 1 a defect of Piton), and fills `error` where that is not null. A
   failed call changes nothing that the caller owns; `*result` is then null.

   Threads: an engine and everything opened on it serve one thread at a time. Callbacks come on the
   thread that called; a log line may come from any thread. A callback must not throw or jump.

   One process: ranks of mpirun are for the `piton` binary. */
#ifndef PITON_C_H
#define PITON_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define PITON_PUBLIC
#else
#define PITON_PUBLIC __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct piton_engine piton_engine;   /* processor, threads, memory */
typedef struct piton_model piton_model;     /* a trained model */
typedef struct piton_trainer piton_trainer; /* a training run */

typedef struct piton_error {
  int code;           /* as returned */
  char message[1020]; /* UTF-8, ends with 0; cut if longer */
} piton_error;

/* Words of a command line; they are copied. */
typedef struct piton_words {
  const char* const* words;
  size_t count;
} piton_words;

enum { PITON_LOG_DEBUG, PITON_LOG_INFO, PITON_LOG_WARNING, PITON_LOG_ERROR };
typedef void (*piton_log_function)(void* user, int level, const char* line);

/* "0.1.0" */
PITON_PUBLIC const char* piton_version(void);

/* `threads`: 0 for every core of this process. `kernels`: "cpu" (also for null) or "reference".
   `log`: null for silence. */
PITON_PUBLIC int piton_engine_open(int threads, const char* kernels, piton_log_function log,
                                   void* user, piton_engine** result, piton_error* error);
/* May come before its models and trainers are closed. Null is allowed, in every close. */
PITON_PUBLIC void piton_engine_close(piton_engine* engine);

/* ---- Models ---- */

/* `path`: the folder of a run, one checkpoint, or a Hugging Face folder. `tokenizer`: its options
   as words, or none for the tokenizer of the folder. */
PITON_PUBLIC int piton_model_load(piton_engine* engine, const char* path, piton_words tokenizer,
                                  piton_model** result, piton_error* error);
PITON_PUBLIC void piton_model_close(piton_model* model);

PITON_PUBLIC int64_t piton_model_vocabulary_size(const piton_model* model);
PITON_PUBLIC int64_t piton_model_max_positions(const piton_model* model); /* longest sequence */
PITON_PUBLIC int64_t piton_model_parameters(const piton_model* model);

/* The ids of `text` (`bytes` bytes), with the special tokens that the tokenizer puts around a text
   if `special` is not 0. Fills `ids` up to `capacity`; `*count` is how many there are. */
PITON_PUBLIC int piton_model_encode(piton_model* model, const char* text, size_t bytes, int special,
                                    int32_t* ids, size_t capacity, size_t* count,
                                    piton_error* error);
/* The text of `ids`: fills `text` up to `capacity` bytes, without a 0; `*bytes` is how long it is.
 */
PITON_PUBLIC int piton_model_decode(piton_model* model, const int32_t* ids, size_t count,
                                    char* text, size_t capacity, size_t* bytes, piton_error* error);

/* A token that was drawn, with the text that is complete by it: whole characters of UTF-8, "" while
   one is not. The rest of the text comes at the end with id -1. Return 0 to end the text. */
typedef int (*piton_token_function)(void* user, int32_t id, double log_probability,
                                    const char* text, size_t bytes);
/* Continues `prompt`. `sampling`: options of `piton generate` (--max-new-tokens, --greedy,
   --temperature,
   --top-k, --top-p, --seed). */
PITON_PUBLIC int piton_model_generate(piton_model* model, const int32_t* prompt, size_t count,
                                      piton_words sampling, piton_token_function each, void* user,
                                      piton_error* error);

/* log_likelihood [count - 1]: of each token but the first, given those before it; natural
 * logarithm. */
PITON_PUBLIC int piton_model_score(piton_model* model, const int32_t* ids, size_t count,
                                   double* log_likelihood, piton_error* error);
/* logits [count, vocabulary size] */
PITON_PUBLIC int piton_model_logits(piton_model* model, const int32_t* ids, size_t count,
                                    float* logits, piton_error* error);

/* ---- Training ---- */

/* Samples of the program, in place of --data-path. */
typedef struct piton_samples {
  int64_t count;
  /* Writes sample `index` (0 .. count - 1): `length` = sequence + 1 ids, of which all but the last
     are inputs and all but the first are labels. The same index must give the same ids. Return 0,
     or anything else to end the run with an error. */
  int (*read)(void* user, int64_t index, int32_t* ids, int64_t length);
  void* user;
  /* Identifies the data in checkpoints: a run resumes on data of this name alone. Copied. */
  const char* name;
} piton_samples;

typedef struct piton_step {
  int64_t iteration;
  int64_t consumed_samples;
  int64_t consumed_tokens;
  double loss;
  double gradient_norm;
  double learning_rate;
  double tokens_per_second;
  double elapsed_ms;
  double validation_loss; /* NaN if none was due */
  int64_t skipped;        /* updates without finite gradients, since the start of the run */
} piton_step;

/* Opens a run: `options` as for `piton pretrain`, recipe included; `samples` may be null. A run
   whose
   --save folder has a checkpoint of --load continues there. */
PITON_PUBLIC int piton_trainer_open(piton_engine* engine, piton_words options,
                                    const piton_samples* samples, piton_trainer** result,
                                    piton_error* error);
PITON_PUBLIC void piton_trainer_close(piton_trainer* trainer);

PITON_PUBLIC int piton_trainer_done(const piton_trainer* trainer); /* 1 after --train-iters */
PITON_PUBLIC int piton_trainer_save_due(
    const piton_trainer* trainer); /* --save-interval, or done */
PITON_PUBLIC int64_t piton_trainer_iteration(const piton_trainer* trainer);
PITON_PUBLIC int64_t piton_trainer_sequence(const piton_trainer* trainer); /* tokens of a sample */

/* One update. After an error of a step the run has ended; close it. */
PITON_PUBLIC int piton_trainer_step(piton_trainer* trainer, piton_step* step, piton_error* error);
/* Mean loss over --eval-iters batches of the validation split. */
PITON_PUBLIC int piton_trainer_evaluate(piton_trainer* trainer, double* loss, piton_error* error);
/* A checkpoint in --save. */
PITON_PUBLIC int piton_trainer_save(piton_trainer* trainer, piton_error* error);
/* Ends the run well: everything that is written is complete. Call it before the close. */
PITON_PUBLIC int piton_trainer_finish(piton_trainer* trainer, piton_error* error);

#ifdef __cplusplus
}
#endif

#endif
