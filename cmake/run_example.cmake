# SPDX-License-Identifier: Apache-2.0
# usage: cmake -D SOURCE=FILE.cpp -P run_example.cmake -- PROGRAM [ARGUMENT...]
#
# Runs PROGRAM and compares its standard output with the comment at the end of SOURCE, which begins with `// Output:`.
# In the comment, `...` matches any text within a line, and a line that contains only `...` matches any number of lines.
# Fails if the output differs or if PROGRAM fails.
set(command)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(after_dashes)
    list(APPEND command "${CMAKE_ARGV${i}}")
  elseif(CMAKE_ARGV${i} STREQUAL "--")
    set(after_dashes TRUE)
  endif()
endforeach()

file(READ ${SOURCE} text)
string(FIND "${text}" "\n// Output:\n" at)
if(at EQUAL -1)
  message(FATAL_ERROR "${SOURCE} does not end with a comment that shows its output: // Output:")
endif()
string(SUBSTRING "${text}" ${at} -1 text)
string(REPLACE "\n// Output:\n" "\n" text "${text}")
string(REGEX REPLACE "\n// ?" "\n" expected "${text}")

execute_process(COMMAND ${command} OUTPUT_VARIABLE output RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message("${output}")
  message(FATAL_ERROR "The program failed: ${status}")
endif()
# White space at the end of lines and of the output is ignored.
foreach(variable expected output)
  string(REGEX REPLACE "[ \t]+\n" "\n" ${variable} "${${variable}}\n")
  string(STRIP "${${variable}}" ${variable})
endforeach()
string(REGEX REPLACE "([][+.*^$()|?\\])" "\\\\\\1" pattern "${expected}")
string(REPLACE "\\.\\.\\." "[^\n]*" pattern "${pattern}")
string(REPLACE "\n[^\n]*\n" "\n.*" pattern "\n${pattern}\n")
if(NOT "\n${output}\n" MATCHES "^${pattern}$")
  message("Expected:\n${expected}\n\nPrinted:\n${output}\n")
  message(FATAL_ERROR "The output differs from the comment at the end of ${SOURCE}")
endif()
message("${output}")
