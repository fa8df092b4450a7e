# Writes a source file with a hash of the compiler's sources.
# Called with -DSOURCES=a;b;c and -DOUTPUT=file.
set(hashes "")
foreach(source IN LISTS SOURCES)
  file(SHA256 ${source} hash)
  string(APPEND hashes ${hash})
endforeach()
string(SHA256 fingerprint "${hashes}")
file(WRITE ${OUTPUT} "namespace ladle::jit {
const char *compilerFingerprint() { return \"${fingerprint}\"; }
} // namespace ladle::jit
")
