# Writes OUTPUT: FUNCTION, which HEADER declares, returns the text of the file TEXT.
file(READ ${TEXT} contents)
# A literal may be long but not without end: one a line.
string(REPLACE "\n" ")text\"\n\"\\n\" R\"text(" contents "${contents}")
file(WRITE ${OUTPUT} "#include \"${HEADER}\"
decltype(${FUNCTION}()) ${FUNCTION}() {
  return R\"text(${contents})text\";
}
")
