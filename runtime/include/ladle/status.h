//===- status.h - errors as values ------------------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Nothing in this library throws. What can fail returns a Status or a Result,
// and has changed nothing if it failed. What was moved from may be destroyed or
// assigned to, and takes no calls.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_STATUS_H
#define LADLE_STATUS_H

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace ladle {

enum class ErrorCode {
  InvalidArgument,   ///< the call asks for what cannot be done
  NotFound,          ///< a file, tensor or kernel that is not there
  InvalidData,       ///< a file that is damaged or of another kind
  Unsupported,       ///< right, but not something that Ladle does
  ResourceExhausted, ///< no memory, no disk
  Internal,          ///< a fault of Ladle
};

/// Success, or a code and a message. The message is for people: lower case, it
/// names the argument, what it got and what was wanted.
class [[nodiscard]] Status {
public:
  /// Success.
  Status() = default;
  Status(ErrorCode code, std::string message)
      : failure(std::make_shared<const Failure>(
            Failure{code, std::move(message)})) {}

  bool ok() const { return !failure; }
  explicit operator bool() const { return ok(); }

  /// Of a failure only.
  ErrorCode code() const {
    assert(failure && "success has no code");
    return failure->code;
  }
  /// Empty on success.
  const std::string &message() const {
    static const std::string none;
    return failure ? failure->message : none;
  }

private:
  struct Failure {
    ErrorCode code;
    std::string message;
  };
  std::shared_ptr<const Failure> failure;
};

/// A value, or why there is none. To take the value of a failure ends the
/// program with its message.
template <typename T> class [[nodiscard]] Result {
public:
  Result(Status failure) : failure(std::move(failure)) {
    assert(!this->failure.ok() && "a success needs a value");
  }
  template <typename U = T, typename = std::enable_if_t<
                                std::is_convertible_v<U &&, T> &&
                                !std::is_same_v<std::decay_t<U>, Result> &&
                                !std::is_same_v<std::decay_t<U>, Status>>>
  Result(U &&value) : held(std::forward<U>(value)) {}

  bool ok() const { return held.has_value(); }
  explicit operator bool() const { return ok(); }
  const Status &status() const { return failure; }
  const std::string &message() const { return failure.message(); }

  T &operator*() & { return get(); }
  const T &operator*() const & { return const_cast<Result *>(this)->get(); }
  T &&operator*() && { return std::move(get()); }
  T *operator->() { return &get(); }
  const T *operator->() const { return &const_cast<Result *>(this)->get(); }

private:
  T &get() {
    if (!held) {
      std::fprintf(stderr, "ladle: the value of a failure was taken: %s\n",
                   message().c_str());
      std::abort();
    }
    return *held;
  }
  std::optional<T> held;
  Status failure;
};

} // namespace ladle

#endif // LADLE_STATUS_H
