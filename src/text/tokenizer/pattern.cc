// Patterns run by PCRE2's just-in-time compiler, with bounds on time and memory.
#include "text/tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "text/tokenizer/pattern_syntax.h"
#include "text/tokenizer/utf8.h"

namespace cmforge {

namespace {

// Per match: far beyond what an honest pattern needs, and reached in well under a second.
constexpr uint32_t kMatchLimit = 20'000'000;
constexpr uint32_t kHeapLimitKib =
    256 * 1024;  // of the interpreter, which stands in when the JIT stack is full
constexpr size_t kJitStackStart = 64 * 1024;
constexpr size_t kJitStackMax = size_t{64} << 20;

struct FreeCode {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
struct FreeCompileContext {
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};
struct FreeJitStack {
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};

std::string MessageOf(int error) {
  PCRE2_UCHAR text[256] = "";
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Pattern::Code {
  std::unique_ptr<pcre2_code, FreeCode> code;
  bool has_jit = false;
};

struct PatternScratch::State {
  std::unique_ptr<pcre2_match_data, FreeMatchData> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, FreeMatchContext> context{pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, FreeJitStack> jit_stack;  // made when a match needs more than 32 KiB
};

PatternScratch::PatternScratch() : state_(std::make_unique<State>()) {
  pcre2_set_match_limit(state_->context.get(), kMatchLimit);
  pcre2_set_heap_limit(state_->context.get(), kHeapLimitKib);
}
PatternScratch::~PatternScratch() = default;
PatternScratch::PatternScratch(PatternScratch&&) noexcept = default;
PatternScratch& PatternScratch::operator=(PatternScratch&&) noexcept = default;

Result<Pattern> Pattern::Compile(std::string_view text) {
  CMF_TRY(const std::string translated, TranslatePattern(text));
  const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  code->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                 PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                                 context.get()));
  if (!code->code) {
    return Fail(ErrorKind::kUnsupported, fmt::format("pattern '{}': {} at byte {} of its translation",
                                                     text.substr(0, 100), MessageOf(error), offset));
  }
  code->has_jit = pcre2_jit_compile(code->code.get(), PCRE2_JIT_COMPLETE) == 0;
  Pattern pattern;
  pattern.code_ = std::move(code);
  return pattern;
}

Pattern Pattern::Literal(std::string_view text) {
  Pattern pattern;
  pattern.literal_ = text;
  return pattern;
}

Result<Pattern::Match> Pattern::FindFrom(std::string_view text, size_t at, PatternScratch& scratch) const {
  if (!code_) {
    const size_t found = text.find(literal_, at);
    return found == std::string_view::npos ? Match{} : Match{found, found + literal_.size()};
  }
  PatternScratch::State& state = *scratch.state_;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int status = PCRE2_ERROR_JIT_STACKLIMIT;
  if (code_->has_jit) {
    const auto run = [&] {
      return pcre2_jit_match(code_->code.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK,
                             state.data.get(), state.context.get());
    };
    status = run();
    if (status == PCRE2_ERROR_JIT_STACKLIMIT && !state.jit_stack) {
      state.jit_stack.reset(pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr));
      pcre2_jit_stack_assign(state.context.get(), nullptr, state.jit_stack.get());
      status = run();
    }
  }
  if (status == PCRE2_ERROR_JIT_STACKLIMIT) {
    status = pcre2_match(code_->code.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         state.data.get(), state.context.get());
  }
  if (status == PCRE2_ERROR_NOMATCH) return Match{};
  if (status < 0) {
    return Fail(ErrorKind::kLimit, fmt::format("pattern: gave up in {} bytes of text from byte {}: {}",
                                               text.size(), at, MessageOf(status)));
  }
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(state.data.get());
  // \K in a look-ahead may put the beginning after the end.
  return Match{std::min(found[0], found[1]), found[1]};
}

Result<Pattern::Match> Pattern::Matches::Next() {
  while (at_ <= text_.size()) {
    auto match = pattern_->FindFrom(text_, at_, *scratch_);
    if (!match || !*match) return match;
    if (match->begin == match->end && match->end == last_end_) {
      at_ += at_ < text_.size() ? static_cast<size_t>(utf8::LengthOf(text_[at_])) : 1;
      continue;
    }
    at_ = last_end_ = match->end;
    return match;
  }
  return Match{};
}

}  // namespace cmforge
