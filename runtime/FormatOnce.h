//===- FormatOnce.h - fmt, compiled once ------------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// fmt is a header here, so that who links ladle_rt needs no library of it.
// Every file that formats would compile all of it, which is a third of what
// many take: precompiled headers say that ladle_rt has it.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_FORMATONCE_H
#define LADLE_RUNTIME_FORMATONCE_H

#include <fmt/format.h>

// With other versions every file compiles its own, as usual.
#if FMT_VERSION / 10000 == 9
#define LADLE_FORMAT_ONCE                                                      \
  template void fmt::detail::vformat_to<char>(                                 \
      fmt::detail::buffer<char> &, fmt::string_view, fmt::format_args,         \
      fmt::detail::locale_ref)
extern LADLE_FORMAT_ONCE;
#endif

#endif // LADLE_RUNTIME_FORMATONCE_H
