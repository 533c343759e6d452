# piton report: pages about one run and about two, and the messages for other paths.
include(${SOURCE}/tests/support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK}/empty)
string(REPEAT "All work and no play makes a dull text. " 60 text)
file(WRITE ${WORK}/text.txt "${text}")
expect(RUN preprocess --input ${WORK}/text.txt --output-prefix ${WORK}/c --tokenizer-type ByteTokenizer CODE 0)
foreach(lr 1e-3 2e-3)
  expect(RUN pretrain --model gpt2-tiny --data-path ${WORK}/c_text_document --tokenizer-type ByteTokenizer
    --seq-length 16 --train-iters 3 --lr ${lr} --timing-log-level 1 --save ${WORK}/lr${lr} CODE 0)
endforeach()

expect(RUN report ${WORK}/lr1e-3 CODE 0 ERR "report: .*lr1e-3/report.html")
file(READ ${WORK}/lr1e-3/report.html page)
foreach(part "<title>lr1e-3</title>" "3 of 3" "finished" "<svg " "tokens a second" "train-iters" "<h2>Times of a step</h2>"
             "lr1e-3, sample 2: 16 tokens, 16 in the loss</summary><pre>")
  string(FIND "${page}" "${part}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "the page has no ${part}")
  endif()
endforeach()

# Two runs; --follow ends at once where none is active.
expect(RUN report ${WORK}/lr1e-3 ${WORK}/lr2e-3 --output ${WORK}/both.html --follow CODE 0)
file(READ ${WORK}/both.html page)
if(NOT page MATCHES "<tr class=.differs.><td>lr</td><td>0.001</td><td>0.002</td>")
  message(FATAL_ERROR "the page does not show that the runs differ in --lr")
endif()

expect(RUN report CODE 2 ERR "no run is named; give the folder of --save")
expect(RUN report ${WORK}/empty CODE 3 ERR "empty: no metrics.jsonl is in it; wanted the folder of a run")
expect(RUN report ${WORK}/nowhere CODE 3 ERR "nowhere: no metrics.jsonl is in it")
expect(RUN report ${WORK}/lr1e-3 --every 0 CODE 2 ERR "--every: got 0, wanted")
file(WRITE ${WORK}/empty/metrics.jsonl "{\"iteration\": 1}\nno\n{\"iteration\": 2}\n")
expect(RUN report ${WORK}/empty CODE 3 ERR "metrics.jsonl:2: not a line of metrics")

# Results of evaluations: tables, worst answers, and the difference of two models.
foreach(name a b)
  expect(RUN eval --load ${WORK}/lr1e-3 --task boolq lambada --task-data-path ${SOURCE}/tests/golden/evaluation/data
    --save-results ${WORK}/results-${name} CODE 0)
endforeach()
expect(RUN report ${WORK}/results-a ${WORK}/results-b --output ${WORK}/results.html CODE 0)
file(READ ${WORK}/results.html page)
foreach(part "<h2>Scores</h2>" "<td>boolq</td><td>acc,none</td>" "Differences to" "<h2>Worst answers</h2>" "+0.0000 ± 0.0000")
  string(FIND "${page}" "${part}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "the page of results has no ${part}")
  endif()
endforeach()
expect(RUN report ${WORK}/results-a ${WORK}/lr1e-3 CODE 2 ERR "some folders are of runs and some of results")
expect(RUN report ${WORK}/results-a --follow CODE 2 ERR "--follow: works only with runs")
