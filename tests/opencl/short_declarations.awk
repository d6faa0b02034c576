# SPDX-License-Identifier: Apache-2.0
# Copies opencl-c.h without comments and without functions that our kernels do not call: vectors except in vload and
# vstore, images, pipes, conversions with rounding, and the atomics of OpenCL 2.0.
{
  while (match($0, /\/\*([^*]|\*+[^*\/])*\*+\//)) $0 = substr($0, 1, RSTART - 1) substr($0, RSTART + RLENGTH)
}
in_comment && !sub(/^.*\*\//, "") { next }
{
  in_comment = sub(/\/\*.*/, "")
  sub(/[ \t]*\/\/.*/, "")
}
/^[ \t]*$/ { next }
/^[ \t]*#/ || continued {
  print
  continued = /\\$/
  next
}
{ statement = statement $0 "\n" }
/;[ \t]*$/ {
  vectors = statement ~ /(char|short|int|long|float|double|half)(2|3|4|8|16)[^0-9a-z_]/ && statement !~ /vload|vstore/
  unused = statement ~ /convert_[a-z]*_|image|pipe|event_t|work_group_|atomic_(fetch|load|store|comp|flag|exch|init|work)/
  if (statement !~ /__ovld/ || !vectors && !unused) printf "%s", statement
  statement = ""
}
END { printf "%s", statement }
