# A link without the shared libraries of LLVM and MLIR.
#
# The distribution links its MLIR archives against libLLVM.so, and their
# exported targets say so: linking a single `MLIRFoo` drags the shared library
# in, and two copies of LLVM in one process end badly. So the archives are named
# by their paths here, which carries none of those interfaces. All of them are
# named; a linker takes from an archive only the members that are referenced.

# ladle_add_static_mlir(NAME): an interface library with all of MLIR and LLVM.
function(ladle_add_static_mlir name)
  get_property(mlir_libraries GLOBAL PROPERTY MLIR_ALL_LIBS)
  set(archives "")
  foreach(library IN LISTS mlir_libraries LLVM_AVAILABLE_LIBS)
    if(TARGET ${library})
      # Some are shared, and some, like Polly's, are exported but not packaged.
      get_target_property(archive ${library} LOCATION)
      if(archive MATCHES "\\.a$" AND EXISTS ${archive})
        list(APPEND archives ${archive})
      endif()
    endif()
  endforeach()
  # LLVM's support library compresses with both.
  find_library(LADLE_ZLIB libz.a REQUIRED)
  find_library(LADLE_ZSTD libzstd.a REQUIRED)
  add_library(${name} INTERFACE)
  # The archives need each other in no order: a group for linkers that care.
  target_link_libraries(${name} INTERFACE
    -Wl,--start-group ${archives} -Wl,--end-group
    ${LADLE_ZSTD} ${LADLE_ZLIB} ${CMAKE_DL_LIBS} pthread m)
  target_link_options(${name} INTERFACE
    -static-libstdc++ -static-libgcc
    -Wl,--gc-sections -Wl,--strip-all)
endfunction()
