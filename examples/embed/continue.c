/* Continues a text with a model, in C.

     continue FOLDER PROMPT */
#include <piton/piton_c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int show(void* user, int32_t id, double log_probability, const char* text, size_t bytes) {
  (void)user, (void)id, (void)log_probability;
  fwrite(text, 1, bytes, stdout);
  fflush(stdout);
  return 1;
}

int main(int count, char** words) {
  if (count != 3) {
    fprintf(stderr, "continue FOLDER PROMPT\n");
    return 2;
  }
  const char* const greedy[] = {"--greedy", "--max-new-tokens", "32"};
  const piton_words sampling = {greedy, sizeof greedy / sizeof *greedy};
  const piton_words none = {NULL, 0};
  piton_error error;
  piton_engine* engine = NULL;
  piton_model* model = NULL;
  size_t length = strlen(words[2]);
  size_t tokens = 0;
  int32_t* ids = malloc((length + 8) * sizeof *ids);
  int code = piton_engine_open(0, NULL, NULL, NULL, &engine, &error);
  if (code == 0) code = piton_model_load(engine, words[1], none, &model, &error);
  if (code == 0) {
    code = piton_model_encode(model, words[2], length, 1, ids, length + 8, &tokens, &error);
  }
  if (code == 0) code = piton_model_generate(model, ids, tokens, sampling, show, NULL, &error);
  if (code == 0) {
    printf("\n");
  } else {
    fprintf(stderr, "continue: %s\n", error.message);
  }
  piton_model_close(model);
  piton_engine_close(engine);
  free(ids);
  return code;
}
