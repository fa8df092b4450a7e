# Writes a source file with the text of the prelude.
# Called with -DPRELUDE=prelude.cuh and -DOUTPUT=file.
file(READ ${PRELUDE} text)
file(WRITE ${OUTPUT} "#include \"codegen/cuda/Prelude.h\"
llvm::StringRef ladle::cudaPrelude() {
  return R\"prelude(${text})prelude\";
}
")
