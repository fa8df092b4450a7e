# Writes OUTPUT, C++ that holds TEXT, a file, as `const char *const` NAME of
# NAMESPACE.
file(READ ${TEXT} contents)
# A literal may be long but not without end: one a line.
string(REPLACE "\n" ")text\"\n\"\\n\" R\"text(" contents "${contents}")
file(WRITE ${OUTPUT} "namespace ${NAMESPACE} {
extern const char *const ${NAME};
const char *const ${NAME} =
R\"text(${contents})text\";
}
")
