/* libpiton in C: train, generate and score from a program. The C++ header (piton.h) and the Python
   package call these functions.

   Options are words of the command line: {"--model", "gpt2-124m", "--bf16"} has the same meaning
   for piton_trainer_open() as for `piton pretrain`. `piton COMMAND --help all` lists them.

   Errors: a function that returns int returns 0, or the exit code that `piton` would have (2 usage,
   3 data, 4 memory, 5 diverged, 1 a defect of Piton), and fills `error` unless it is null. A failed
   call changes nothing that the caller owns; `*result` is then null. A null pointer that must not
   be null is code 2; the functions without `error` return -2 for it. A pointer to memory of 0
   values may be null.

   Threads: an engine and everything opened on it must be used by one thread at a time. Callbacks
   are called on the thread of the call; the log function may be called on any thread. A callback
   must not throw or jump out (longjmp).

   Processes: the library runs in one process. To use several ranks, run `piton` with mpirun. */
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
  int code;           /* the value that the function returned */
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

/* `threads`: at most 8192; 0 for one thread per core of this process. `kernels`: "cpu" (also for
   null) or "reference". `log`: null for no log. */
PITON_PUBLIC int piton_engine_open(int threads, const char* kernels, piton_log_function log,
                                   void* user, piton_engine** result, piton_error* error);
/* May be called before the models and trainers of the engine are closed. Every close function
   accepts null. */
PITON_PUBLIC void piton_engine_close(piton_engine* engine);

/* ---- Models ---- */

/* `path`: the folder of a run, one checkpoint, or a Hugging Face folder. `tokenizer`: tokenizer
   options as words; no words for the tokenizer of the folder. */
PITON_PUBLIC int piton_model_load(piton_engine* engine, const char* path, piton_words tokenizer,
                                  piton_model** result, piton_error* error);
PITON_PUBLIC void piton_model_close(piton_model* model);

PITON_PUBLIC int64_t piton_model_vocabulary_size(const piton_model* model);
PITON_PUBLIC int64_t piton_model_max_positions(const piton_model* model); /* longest sequence */
PITON_PUBLIC int64_t piton_model_parameters(const piton_model* model);

/* Encodes `text` (`bytes` bytes). If `special` is not 0, adds the special tokens that the tokenizer
   puts around a text. Writes at most `capacity` ids to `ids`; `*count` is the number of all ids. */
PITON_PUBLIC int piton_model_encode(piton_model* model, const char* text, size_t bytes, int special,
                                    int32_t* ids, size_t capacity, size_t* count,
                                    piton_error* error);
/* Decodes `ids`, each of which is in the vocabulary. Writes at most `capacity` bytes to `text`,
   without a 0 at the end; `*bytes` is the length of the whole text. */
PITON_PUBLIC int piton_model_decode(piton_model* model, const int32_t* ids, size_t count,
                                    char* text, size_t capacity, size_t* bytes, piton_error* error);

/* Called for each new token, with the text that it completes: whole UTF-8 characters, "" while a
   character is not complete. If text is left at the end, a last call has id -1 and that text. Bytes
   that are no characters are U+FFFD.
   Return 0 to end the text. */
typedef int (*piton_token_function)(void* user, int32_t id, double log_probability,
                                    const char* text, size_t bytes);
/* Continues `prompt`. `sampling`: options of `piton generate` (--max-new-tokens, --greedy,
   --temperature, --top-k, --top-p, --seed). */
PITON_PUBLIC int piton_model_generate(piton_model* model, const int32_t* prompt, size_t count,
                                      piton_words sampling, piton_token_function each, void* user,
                                      piton_error* error);

/* log_likelihood [count - 1]: natural logarithm of the probability of each token except the first,
   given the tokens before it. */
PITON_PUBLIC int piton_model_score(piton_model* model, const int32_t* ids, size_t count,
                                   double* log_likelihood, piton_error* error);
/* logits [count, vocabulary size] */
PITON_PUBLIC int piton_model_logits(piton_model* model, const int32_t* ids, size_t count,
                                    float* logits, piton_error* error);

/* ---- Training ---- */

/* Samples that the program provides, instead of --data-path. */
typedef struct piton_samples {
  int64_t count;
  /* Writes sample `index` (0 .. count + validation_count - 1): `length` = sequence + 1 ids, of
     which all but the last are inputs and all but the first are labels. The same index must give
     the same ids. Return 0, or anything else to end the run with an error. */
  int (*read)(void* user, int64_t index, int32_t* ids, int64_t length);
  void* user;
  /* Identifies the data in checkpoints: a run only resumes on data of the same name. Copied. */
  const char* name;
  /* Samples for --eval-iters, which follow the `count` training samples. 0: none. */
  int64_t validation_count;
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

/* Opens a run. `options`: as for `piton pretrain`, which may include a recipe. `samples` may be
   null. If the folder of --load has a checkpoint, the run continues from it. */
PITON_PUBLIC int piton_trainer_open(piton_engine* engine, piton_words options,
                                    const piton_samples* samples, piton_trainer** result,
                                    piton_error* error);
PITON_PUBLIC void piton_trainer_close(piton_trainer* trainer);

PITON_PUBLIC int piton_trainer_done(const piton_trainer* trainer); /* 1 after --train-iters */
PITON_PUBLIC int piton_trainer_save_due(
    const piton_trainer* trainer); /* --save-interval, or done */
PITON_PUBLIC int64_t piton_trainer_iteration(const piton_trainer* trainer);
PITON_PUBLIC int64_t piton_trainer_sequence(const piton_trainer* trainer); /* tokens of a sample */

/* Makes one update. After an error the run has ended; close it. */
PITON_PUBLIC int piton_trainer_step(piton_trainer* trainer, piton_step* step, piton_error* error);
/* Mean loss over --eval-iters batches of the validation split. */
PITON_PUBLIC int piton_trainer_evaluate(piton_trainer* trainer, double* loss, piton_error* error);
/* Saves a checkpoint in --save. */
PITON_PUBLIC int piton_trainer_save(piton_trainer* trainer, piton_error* error);
/* Ends the run: completes everything that is written. Call it before piton_trainer_close(). */
PITON_PUBLIC int piton_trainer_finish(piton_trainer* trainer, piton_error* error);

#ifdef __cplusplus
}
#endif

#endif
