# How Ladle's libraries and tools are declared, in one place.

# Warnings of our own code; MLIR's headers are system headers.
add_library(ladle_options INTERFACE)
target_compile_options(ladle_options INTERFACE -Wall -Wextra
                       -Wno-unused-parameter)

# Vptr checks need RTTI, which LLVM is built without; the function check needs
# type information that the shared libraries do not carry.
if(LADLE_SANITIZE)
  add_compile_options(-fsanitize=address,undefined
                      -fno-sanitize=vptr,function -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined -fno-sanitize=vptr,function)
endif()
if(LADLE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# MLIR's headers are most of the compile time of every file that uses them:
# one precompiled header serves all compiler libraries and tools.
set(ladle_cmake ${CMAKE_CURRENT_LIST_DIR})
add_library(ladle_pch OBJECT ${ladle_cmake}/Precompiled.cpp)
target_compile_options(ladle_pch PRIVATE -fno-rtti -fno-exceptions)
target_link_libraries(ladle_pch PRIVATE ladle_options)
target_precompile_headers(ladle_pch PRIVATE ${ladle_cmake}/Precompiled.h)
# Others for what knows no MLIR: the runtime, command lines, and tests. The last
# two are compiled more often than they compute.
option(LADLE_QUICK "Do not optimise command lines and tests" OFF)
function(ladle_compile_as kind target)
  if(LADLE_QUICK AND NOT kind STREQUAL "runtime")
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()
function(ladle_add_host_pch kind header)
  set(name ladle_${kind}_pch)
  add_library(${name} OBJECT ${ladle_cmake}/Precompiled.cpp)
  target_precompile_headers(${name} PRIVATE ${ladle_cmake}/${header})
  target_link_libraries(${name} PRIVATE ladle_options ${ARGN})
  ladle_compile_as(${kind} ${name})
endfunction()
find_package(CLI11 REQUIRED)
find_package(fmt REQUIRED)
ladle_add_host_pch(runtime PrecompiledRuntime.h fmt::fmt-header-only)
ladle_add_host_pch(command PrecompiledCommand.h
  fmt::fmt-header-only CLI11::CLI11)
if(LADLE_BUILD_TESTS)
  ladle_add_host_pch(test PrecompiledTest.h)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # Lets ccache reuse a precompiled header whose text has not changed.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang\ -fno-pch-timestamp>)
endif()

# ladle_compiler_library(NAME sources... [LINK libs...] [DEPENDS targets...]
#                        [PRECOMPILE header] [INSTALL])
# A library that includes MLIR: no RTTI, no exceptions, as LLVM was built.
# PRECOMPILE: a precompiled header of its own in place of the common one, or the
# library whose it is.
# INSTALL: a part of ladle_jit, which programs of others link.
function(ladle_compiler_library name)
  cmake_parse_arguments(ARG "INSTALL" "PRECOMPILE" "LINK;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_compile_options(${name} PRIVATE -fno-rtti -fno-exceptions)
  if(TARGET "${ARG_PRECOMPILE}")
    target_precompile_headers(${name} REUSE_FROM ${ARG_PRECOMPILE})
  elseif(ARG_PRECOMPILE)
    target_precompile_headers(${name} PRIVATE
                              ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_PRECOMPILE})
  else()
    target_precompile_headers(${name} REUSE_FROM ladle_pch)
  endif()
  target_link_libraries(${name}
    PUBLIC ${ARG_LINK} PRIVATE $<BUILD_INTERFACE:ladle_options>)
  ladle_link_mlir(${name} PUBLIC)
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
  # The archives of the portable binary stay in its build.
  if(ARG_INSTALL AND NOT LADLE_STATIC)
    install(TARGETS ${name} EXPORT LadleTargets)
  endif()
endfunction()

# ladle_compiler_tool(NAME sources... [LINK libs...])
function(ladle_compiler_tool name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_compile_options(${name} PRIVATE -fno-rtti -fno-exceptions -fPIC)
  # Code of executables would be -fPIE, which the precompiled header is not.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_precompile_headers(${name} REUSE_FROM ladle_pch)
  target_link_libraries(${name} PRIVATE ${ARG_LINK} ladle_options)
  ladle_link_mlir(${name} PRIVATE)
endfunction()

# ladle_precompile(TARGET runtime|command|test)
# Gives a target that includes no MLIR the precompiled header of its kind.
function(ladle_precompile target kind)
  ladle_compile_as(${kind} ${target})
  target_precompile_headers(${target} REUSE_FROM ladle_${kind}_pch)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE)
    # Code of executables would be -fPIE, which the precompiled header is not.
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
endfunction()

# ladle_fuzzer(NAME sources... [LINK libs...])
# A libFuzzer target; only with LADLE_FUZZ.
function(ladle_fuzzer name)
  if(NOT LADLE_FUZZ)
    return()
  endif()
  ladle_compiler_tool(${name} ${ARGN})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(ladle-sanitized ${name})
endfunction()

# ladle_sanitized(TARGET tests...)
# The named tests, which need TARGET, are also run under the sanitizers. Only a
# part of the suite is: a second build of all of MLIR's users takes too long.
add_custom_target(ladle-sanitized)
function(ladle_sanitized target)
  add_dependencies(ladle-sanitized ${target})
  set_property(TEST ${ARGN} APPEND PROPERTY LABELS sanitized)
endfunction()

# ladle_link_mlir(TARGET PUBLIC|PRIVATE)
# The shared libraries of the distribution while developing: they link in a
# second. The archives for a binary that has to run without them. Nothing else
# may name a library of MLIR: the process would hold two copies of it.
if(LADLE_STATIC)
  include(StaticMLIR)
  ladle_add_static_mlir(ladle_mlir_static)
endif()
function(ladle_link_mlir target visibility)
  if(LADLE_STATIC)
    target_link_libraries(${target} ${visibility} ladle_mlir_static)
  else()
    target_link_libraries(${target} ${visibility} MLIR LLVM)
  endif()
endfunction()

# ladle_embed_text(OUTPUT FILE HEADER FUNCTION): sets OUTPUT to a source file in
# which FUNCTION, as HEADER declares it, returns the text of FILE.
set(ladle_embed_script ${ladle_cmake}/EmbedText.cmake)
function(ladle_embed_text output file header function)
  cmake_path(GET file STEM name)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}Text.cpp)
  add_custom_command(OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} -DTEXT=${file} -DHEADER=${header}
      -DFUNCTION=${function} -DOUTPUT=${source} -P ${ladle_embed_script}
    DEPENDS ${file} ${ladle_embed_script} VERBATIM)
  set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  set(${output} ${source} PARENT_SCOPE)
endfunction()
