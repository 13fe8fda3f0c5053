// Errors are values: Result<T> holds a T or an Error whose kind decides the exit code and the HTTP
// status, and whose message says file, part, fact with numbers and remedy in one line.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace cmforge {

enum class ErrorKind {
  kUsage,        // the caller asked for something that makes no sense
  kNotFound,     // a file, tensor, task or skill that is not there
  kIo,           // reading or writing failed
  kCorrupt,      // the bytes are not what they claim to be
  kUnsupported,  // valid, but not something this build or this machine does
  kLimit,        // a bound on memory, length or depth was reached
  kCancelled,    // the user interrupted
  kInternal,     // our own mistake
};

struct Error {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;  // "file: part: fact with numbers: what to do", lower case, no final stop
  // The spec's own name of a container error (CMF v2, 1.2): "InvalidMagic", "UnsupportedVersion",
  // "UnsupportedFeature", "Bounds", "Parse"; empty elsewhere. Always a string literal.
  std::string_view name = {};

  /// The same error with `prefix` and ": " in front, for callers that know the file or part.
  [[nodiscard]] Error In(std::string_view prefix) && {
    message = fmt::format("{}: {}", prefix, message);
    return std::move(*this);
  }
};

template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
};

/// An error to return from a function whose result is Result<anything>.
[[nodiscard]] inline tl::unexpected<Error> Fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}
[[nodiscard]] inline tl::unexpected<Error> Fail(ErrorKind kind, std::string message,
                                                std::string_view name = {}) {
  return tl::unexpected<Error>(Error{kind, std::move(message), name});
}

}  // namespace cmforge

#define CMF_CONCAT_INNER(a, b) a##b
#define CMF_CONCAT(a, b) CMF_CONCAT_INNER(a, b)

/// CMF_TRY(auto file, MappedFile::Open(path)): declares or assigns the value, or returns the error.
#define CMF_TRY(target, ...) CMF_TRY_AS(CMF_CONCAT(cmf_result_, __COUNTER__), target, __VA_ARGS__)
#define CMF_TRY_AS(result, target, ...)                           \
  auto result = (__VA_ARGS__);                                    \
  if (!result) return ::cmforge::Fail(std::move(result).error()); \
  target = std::move(*result)

/// CMF_CHECK(writer.Commit()): returns the error of a Result<void>. A lambda inside may use it too.
#define CMF_CHECK(...) CMF_CHECK_AS(CMF_CONCAT(cmf_status_, __COUNTER__), __VA_ARGS__)
#define CMF_CHECK_AS(status, ...)                                                                \
  do {                                                                                           \
    if (auto status = (__VA_ARGS__); !status) return ::cmforge::Fail(std::move(status).error()); \
  } while (false)
