# Writes a source file with a text.
# Called with -DTEXT=Cursors.cuh, -DHEADER=runtime/jit/Cursors.h,
# -DFUNCTION=ladle::jit::cursorsText and -DOUTPUT=file.
file(READ ${TEXT} text)
file(WRITE ${OUTPUT} "#include \"${HEADER}\"
llvm::StringRef ${FUNCTION}() {
  return R\"text(${text})text\";
}
")
