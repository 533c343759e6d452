// What the samplers of llama.cpp leave of logits, what its DRY penalty takes from them, the
// probabilities of its dynamic temperature, and the steps of Mirostat 2.0.
//
//     cd llama.cpp  # the source, as in llama_cpp_python 0.3.36
//     g++ -std=c++20 -O1 -static -Iinclude -Isrc -Iggml/include
//         PITON/tools/oracle/llama_samplers.cpp -Wl,--unresolved-symbols=ignore-all -o samplers
//     ./samplers > PITON/tests/golden/sampling/llama_samplers.jsonl
//
// Only the file of its samplers is compiled, here, because Mirostat's state is not in a header; what
// it calls of the rest is defined here.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "llama-impl.h"
#include "llama-sampler.cpp"
#include "llama-vocab.h"
#include "llama.h"

struct llama_vocab::impl {};
llama_vocab::llama_vocab() {}
llama_vocab::~llama_vocab() {}
void llama_log_internal(ggml_log_level, const char*, ...) {}

namespace {

using Ids = std::vector<llama_token>;
std::mt19937 engine(5);

int integer(int least, int most) { return std::uniform_int_distribution<int>(least, most)(engine); }
double number(double least, double most) {
  const double x = std::uniform_real_distribution<double>(least, most)(engine);
  return std::round(x * 100) / 100;
}

template <typename T>
std::string list(const std::vector<T>& values) {
  std::string text;
  for (const T& one : values) text += (text.empty() ? "" : ", ") + std::to_string(one);
  return "[" + text + "]";
}

// Takes the sampler.
std::vector<llama_token_data> applied(llama_sampler* sampler, std::vector<llama_token_data> data) {
  llama_token_data_array all{data.data(), data.size(), -1, false};
  llama_sampler_apply(sampler, &all);
  llama_sampler_free(sampler);
  return {all.data, all.data + all.size};
}

void filters() {
  std::vector<llama_token_data> data;
  std::vector<double> logits;
  for (int id = 0; id < 8; ++id) {
    double one = number(-1.5, 1.5);
    while (std::find(logits.begin(), logits.end(), one) != logits.end()) one = number(-1.5, 1.5);
    logits.push_back(one);
    data.push_back({id, static_cast<float>(logits.back()), 0});
  }
  const double sigma = integer(0, 1) ? number(0.5, 2.5) : 0;
  const double least = integer(0, 2) == 0 ? number(0.05, 0.5) : 0;
  const double typical = integer(0, 1) ? number(0.2, 0.95) : 1;
  const double threshold = integer(0, 1) ? number(0.05, 0.3) : 0;
  if (sigma > 0) {
    data = applied(llama_sampler_init_top_n_sigma(static_cast<float>(sigma)), data);
    std::erase_if(data, [](const llama_token_data& one) { return std::isinf(one.logit); });
  }
  if (least > 0) data = applied(llama_sampler_init_min_p(static_cast<float>(least), 0), data);
  if (typical < 1) data = applied(llama_sampler_init_typical(static_cast<float>(typical), 0), data);
  if (threshold > 0)
    data = applied(llama_sampler_init_xtc(1, static_cast<float>(threshold), 0, 1), data);
  std::vector<bool> is_left(8);
  for (const auto& one : data) is_left[one.id] = true;
  Ids left;
  for (int id = 0; id < 8; ++id)
    if (is_left[id]) left.push_back(id);
  std::printf(
      "{\"logits\": %s, \"top_n_sigma\": %g, \"min_p\": %g, \"typical_p\": %g, "
      "\"xtc_threshold\": %g, \"left\": %s}\n",
      list(logits).c_str(), sigma, least, typical, threshold, list(left).c_str());
}

void runs() {
  Ids text;
  const int kinds = integer(2, 4);
  for (int i = integer(1, 40); i > 0; --i) text.push_back(integer(0, kinds));
  std::vector<Ids> breakers;
  for (int i = integer(0, 2); i > 0; --i) {
    breakers.push_back({});
    for (int k = integer(1, 3); k > 0; --k) breakers.back().push_back(integer(0, 4));
  }
  const double multiplier = number(0.1, 2);
  const double base = number(1, 3);
  const int allowed = integer(0, 3);
  const int last = integer(0, 2) == 0 ? integer(1, 30) : 1000;
  llama_sampler* dry = llama_sampler_init_dry_testing(
      static_cast<float>(multiplier), static_cast<float>(base), allowed, last, breakers);
  for (const llama_token id : text) llama_sampler_accept(dry, id);
  std::vector<llama_token_data> data;
  for (int id = 0; id < 6; ++id) data.push_back({id, 0, 0});
  data = applied(dry, data);
  std::string tails;
  for (const Ids& one : breakers) tails += (tails.empty() ? "" : ", ") + list(one);
  std::string penalties;
  for (const auto& one : data) {
    char text_of[40];
    std::snprintf(text_of, sizeof text_of, "%.9g", 0 - one.logit);
    penalties += (penalties.empty() ? "" : ", ") + std::string(text_of);
  }
  std::printf(
      "{\"text\": %s, \"breakers\": [%s], \"multiplier\": %g, \"base\": %g, \"allowed_length\": "
      "%d, \"last_n\": %d, \"penalties\": [%s]}\n",
      list(text).c_str(), tails.c_str(), multiplier, base, allowed, last, penalties.c_str());
}

struct Candidates {
  std::vector<double> logits;
  std::vector<llama_token_data> data;
};

Candidates candidates() {
  Candidates all;
  for (int id = 0; id < 8; ++id) {
    all.logits.push_back(number(-3, 3));
    all.data.push_back({id, static_cast<float>(all.logits.back()), 0});
  }
  return all;
}

// Each answer of the sampler has the probabilities.
void dynamic_temperature() {
  const Candidates all = candidates();
  const double temperature = number(0, 2);
  const double range = number(0.1, 2.5);
  const double exponent = number(0, 3);
  const auto data = applied(
      llama_sampler_init_temp_ext(static_cast<float>(temperature), static_cast<float>(range),
                                  static_cast<float>(exponent)),
      all.data);
  std::vector<double> shares(8);
  for (const auto& one : data) shares[static_cast<std::size_t>(one.id)] = one.p;
  std::printf(
      "{\"dynamic_logits\": %s, \"temperature\": %g, \"dynatemp_range\": %g, "
      "\"dynatemp_exponent\": %g, \"probabilities\": %s}\n",
      list(all.logits).c_str(), temperature, range, exponent, list(shares).c_str());
}

// A text of a few tokens: what may be drawn, what is, and what may be after it.
void mirostat() {
  const double tau = number(0.5, 4);
  const double eta = number(0.05, 1);
  llama_sampler* sampler = llama_sampler_init_mirostat_v2(
      static_cast<std::uint32_t>(integer(0, 1000)), static_cast<float>(tau),
      static_cast<float>(eta));
  const auto* state = static_cast<llama_sampler_mirostat_v2*>(sampler->ctx);
  std::string steps;
  for (int step = 0; step < 6; ++step) {
    Candidates all = candidates();
    const float before = state->mu;
    llama_token_data_array array{all.data.data(), all.data.size(), -1, false};
    llama_sampler_apply(sampler, &array);
    Ids left;
    for (std::size_t i = 0; i < array.size; ++i) left.push_back(array.data[i].id);
    std::sort(left.begin(), left.end());
    char text[400];
    std::snprintf(text, sizeof text,
                  "{\"logits\": %s, \"most_surprise\": %.7g, \"left\": %s, \"drawn\": %d, "
                  "\"next_most_surprise\": %.7g}",
                  list(all.logits).c_str(), static_cast<double>(before), list(left).c_str(),
                  array.data[array.selected].id, static_cast<double>(state->mu));
    steps += (steps.empty() ? "" : ", ") + std::string(text);
  }
  llama_sampler_free(sampler);
  std::printf("{\"mirostat_tau\": %g, \"mirostat_eta\": %g, \"steps\": [%s]}\n", tau, eta,
              steps.c_str());
}

}  // namespace

int main() {
  for (int i = 0; i < 60; ++i) filters();
  for (int i = 0; i < 120; ++i) runs();
  for (int i = 0; i < 30; ++i) dynamic_temperature();
  for (int i = 0; i < 15; ++i) mirostat();
}
