# The recipes of known models: the numbers of parameters equal those of the models (unpadded, tied tables once).
include(${CMAKE_CURRENT_LIST_DIR}/../support/expect.cmake)
set(models
  "llama-7b 6738415616" "llama-13b 13015864320" "llama-33b 32528943616" "llama-65b 65285660672"
  "llama2-7b 6738415616" "llama2-13b 13015864320" "llama2-70b 68976648192"
  "baichuan-7b 7000559616" "baichuan-13b 13264901120" "internlm-7b 7321948160" "aquila-7b 7295537152"
  "qwen1.5-0.5b 463987712" "bloom-560m 559214592" "bloom-7b1 7069016064" "bloom-176b 176247271424"
  "gpt-345m 354823168")
foreach(model IN LISTS models)
  string(REPLACE " " ";" model "${model}")
  list(GET model 0 name)
  list(GET model 1 parameters)
  expect(RUN inspect ${SOURCE}/recipes/${name}.toml CODE 0
    OUT "^${parameters} parameters, " "weights [0-9.]+ MiB, gradients [0-9.]+ MiB, " " GFLOP a token of ")
endforeach()
# The table of a padded vocabulary is not counted, but held.
expect(RUN plan ${SOURCE}/recipes/gpt-345m.toml CODE 0)

# No recipe is without its line above.
file(GLOB recipes RELATIVE ${SOURCE}/recipes ${SOURCE}/recipes/*.toml)
list(REMOVE_ITEM recipes demo.toml chat.toml)
list(FILTER recipes EXCLUDE REGEX "^tune-")  # finetune.cmake
list(LENGTH recipes found)
list(LENGTH models wanted)
if(NOT found EQUAL wanted)
  message(FATAL_ERROR "${found} recipes, ${wanted} lines: ${recipes}")
endif()
