# Run by build_info.cmake: FILE, SOURCE, VERSION, BACK_ENDS, BUILD are given.
execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "unknown")
else()
  execute_process(COMMAND git -C ${SOURCE} status --porcelain --untracked-files=no
    OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    string(APPEND commit ", modified")
  endif()
endif()
if(BACK_ENDS STREQUAL "")
  set(BACK_ENDS "none")
endif()
set(text "// Written by the build.
#include \"cli/build_info.h\"

namespace piton::cli {

BuildInfo build_info() { return {\"${VERSION}\", \"${commit}\", \"${BACK_ENDS}\", \"${BUILD}\"}; }

}  // namespace piton::cli
")
set(before "")
if(EXISTS ${FILE})
  file(READ ${FILE} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${FILE} "${text}")
endif()
