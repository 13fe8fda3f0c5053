// A recursive-descent translator for patterns; one method per level of the grammar.
#include "text/tokenizer/pattern_syntax.h"

#include <array>
#include <optional>
#include <vector>

#include "text/tokenizer/pattern_class.h"
#include "text/tokenizer/properties.h"
#include "text/tokenizer/utf8.h"

namespace cmforge {

namespace {

constexpr size_t kMaxPatternBytes = 16384;
constexpr int kMaxDepth = 100;
constexpr int kMaxClasses = 500;
constexpr int kMaxRepeat = 100000;

struct Flags {
  bool ignore_case = false;
  bool dot_all = false;
  bool extended = false;
};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> Run() {
    std::string out;
    CMF_CHECK(Alternatives(Flags{}, 0, out));
    if (!AtEnd()) return Wrong("')' without '('");
    return out;
  }

 private:
  // --- the text ---
  [[nodiscard]] bool AtEnd() const { return at_ == pattern_.size(); }
  [[nodiscard]] char Peek(size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  bool Take(std::string_view text) {
    if (pattern_.substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }
  uint32_t TakeCodePoint() {
    const char* p = pattern_.data() + at_;
    const uint32_t c = utf8::Next(p);
    at_ = static_cast<size_t>(p - pattern_.data());
    return c;
  }
  [[nodiscard]] tl::unexpected<Error> Wrong(std::string_view fact) const {
    return Fail(ErrorKind::kCorrupt, fmt::format("pattern: byte {}: {}", at_, fact));
  }
  [[nodiscard]] tl::unexpected<Error> Unsupported(std::string_view what) const {
    return Fail(ErrorKind::kUnsupported, fmt::format("pattern: byte {}: {} is not supported", at_, what));
  }

  // --- the grammar ---

  // Up to ')' or the end; does not take the ')'.
  Result<void> Alternatives(Flags flags, int depth, std::string& out) {
    if (depth > kMaxDepth) {
      return Fail(ErrorKind::kLimit, fmt::format("pattern: groups nested deeper than {}", kMaxDepth));
    }
    while (!AtEnd() && Peek() != ')') {
      if (Take("|")) {
        out += '|';
        continue;
      }
      CMF_CHECK(Item(flags, depth, out));
    }
    return {};
  }

  // One atom with its quantifiers.
  Result<void> Item(Flags flags, int depth, std::string& out) {
    if (flags.extended) {
      const char c = Peek();
      if (c == ' ' || (c >= 9 && c <= 13)) {
        ++at_;
        return {};
      }
      if (c == '#') {
        while (!AtEnd() && Peek() != '\n') ++at_;
        return {};
      }
    }
    std::string atom;
    bool may_repeat = true;
    CMF_CHECK(Atom(flags, depth, atom, may_repeat));
    if (may_repeat) CMF_CHECK(Quantifiers(flags, atom));
    out += atom;
    return {};
  }

  Result<void> Quantifiers(Flags flags, std::string& atom) {
    bool is_plain = true;  // no quantifier yet: PCRE2 takes one without help
    while (true) {
      if (flags.extended) {
        while (Peek() == ' ' || (Peek() >= 9 && Peek() <= 13)) ++at_;
      }
      std::string quantifier;
      if (Take("*")) {
        quantifier = "*";
      } else if (Take("+")) {
        quantifier = "+";
      } else if (Take("?")) {
        quantifier = "?";
      } else if (const auto interval = Interval()) {
        CMF_TRY(const std::string text, *interval);
        if (atom.empty()) return Wrong("nothing to repeat");
        if (!is_plain) Wrap(atom);
        atom += text;
        // {n}? is an optional {n}; {n,m}? is lazy; {n,m}+ is a repeated {n,m}.
        if (text.find(',') != std::string::npos && Take("?")) atom += '?';
        is_plain = false;
        continue;
      } else {
        return {};
      }
      if (atom.empty()) return Wrong("nothing to repeat");
      if (!is_plain) Wrap(atom);
      atom += quantifier;
      if (Take("?")) {
        atom += '?';
      } else if (Take("+")) {
        atom += '+';
      }
      is_plain = false;
    }
  }

  static void Wrap(std::string& atom) {
    atom.insert(0, "(?:");
    atom += ')';
  }

  // {n}, {n,}, {,m}, {n,m}; anything else in braces is literal text (nullopt, nothing taken).
  std::optional<Result<std::string>> Interval() {
    if (Peek() != '{') return std::nullopt;
    size_t i = at_ + 1;
    const auto number = [&]() -> std::optional<int> {
      const size_t begin = i;
      int value = 0;
      while (i < pattern_.size() && pattern_[i] >= '0' && pattern_[i] <= '9') {
        value = std::min(value * 10 + (pattern_[i] - '0'), kMaxRepeat + 1);
        ++i;
      }
      return i == begin ? std::nullopt : std::optional(value);
    };
    const auto low = number();
    std::optional<int> high = low;
    const bool has_comma = i < pattern_.size() && pattern_[i] == ',';
    if (has_comma) {
      ++i;
      high = number();
      if (!low && !high) return std::nullopt;
    } else if (!low) {
      return std::nullopt;
    }
    if (i >= pattern_.size() || pattern_[i] != '}') return std::nullopt;
    if (low.value_or(0) > kMaxRepeat || high.value_or(0) > kMaxRepeat) {
      return Result<std::string>(Wrong(fmt::format("a repeat count above {}", kMaxRepeat)));
    }
    if (high && low && *high < *low) return Result<std::string>(Wrong("a repeat range that runs backwards"));
    at_ = i + 1;
    if (!has_comma) return Result<std::string>(fmt::format("{{{}}}", *low));
    return Result<std::string>(high ? fmt::format("{{{},{}}}", low.value_or(0), *high)
                                    : fmt::format("{{{},}}", low.value_or(0)));
  }

  Result<void> Atom(Flags flags, int depth, std::string& out, bool& may_repeat) {
    switch (Peek()) {
      case '(':
        return Group(flags, depth, out, may_repeat);
      case '[': {
        ++at_;
        CMF_TRY(CodePointSet set, Class(depth + 1, flags));
        if (flags.ignore_case) set = CaseClosure(set);
        return PutSet(set, out);
      }
      case '.':
        ++at_;
        out += flags.dot_all ? "(?s:.)" : "[^\\n]";
        return {};
      case '^':
      case '$':
        out += pattern_[at_++];
        return {};
      case '\\':
        return Escape(flags, out);
      case '*':
      case '+':
      case '?':
        return Wrong("nothing to repeat");
      default:
        PutLiteral(TakeCodePoint(), flags, out);
        return {};
    }
  }

  Result<void> Close(std::string_view what) {
    if (Take(")")) return {};
    return Wrong(fmt::format("'{}' is never closed", what));
  }

  Result<void> Group(Flags flags, int depth, std::string& out, bool& may_repeat) {
    ++at_;  // '('
    if (Peek() == '*') return Unsupported("a control verb");
    if (!Take("?")) return Enclosed("(", flags, depth, out);
    for (const std::string_view kind : {":", "=", "!", ">", "<=", "<!"}) {
      if (Take(kind)) return Enclosed(fmt::format("(?{}", kind), flags, depth, out);
    }
    if (Take("#")) {
      while (!AtEnd() && Peek() != ')') at_ += Peek() == '\\' && at_ + 1 < pattern_.size() ? 2 : 1;
      may_repeat = false;
      return Close("(?#");
    }
    if (Peek() == '<' || Peek() == '\'') {
      const char close = Peek() == '<' ? '>' : '\'';
      ++at_;
      CMF_TRY(const std::string name, Name(close));
      return Enclosed(fmt::format("(?<{}>", name), flags, depth, out);
    }
    return OptionGroup(flags, depth, out, may_repeat);
  }

  // Opens a group, translates what is inside and closes it.
  Result<void> Enclosed(std::string_view open, Flags flags, int depth, std::string& out) {
    out += open;
    CMF_CHECK(Alternatives(flags, depth + 1, out));
    out += ')';
    return Close("(");
  }

  // (?im-x:...) and (?im-x): the second reaches to the end of the enclosing group, alternatives included.
  Result<void> OptionGroup(Flags flags, int depth, std::string& out, bool& may_repeat) {
    bool value = true;
    while (true) {
      switch (Peek()) {
        case '-':
          value = false;
          break;
        case 'i':
          flags.ignore_case = value;
          break;
        case 'm':
          flags.dot_all = value;
          break;
        case 'x':
          flags.extended = value;
          break;
        case ':':
          ++at_;
          return Enclosed("(?:", flags, depth, out);
        case ')':
          ++at_;
          may_repeat = false;
          out += "(?:";
          CMF_CHECK(Alternatives(flags, depth + 1, out));
          out += ')';
          return {};
        default:
          return Unsupported("this kind of group");
      }
      ++at_;
    }
  }

  Result<std::string> Name(char close) {
    std::string name;
    while (!AtEnd() && Peek() != close) {
      const char c = Peek();
      const bool is_word =
          (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
      if (!is_word || name.size() >= 32) return Unsupported("this name of a group");
      name += c;
      ++at_;
    }
    if (AtEnd() || name.empty()) return Wrong("a group without a name");
    ++at_;
    return name;
  }

  Result<void> Escape(Flags flags, std::string& out) {
    ++at_;  // '\'
    if (AtEnd()) return Wrong("a lone '\\' at the end");
    const char c = Peek();
    switch (c) {
      case 'b':
      case 'B': {
        ++at_;
        CMF_TRY(const std::string word, ClassText(WordSet()));
        out += c == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                        : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
        return {};
      }
      case 'A':
      case 'z':
      case 'Z':
      case 'G':
      case 'K':
      case 'X':
        ++at_;
        out += '\\';
        out += c;
        return {};
      case 'R':
        ++at_;
        out += "(?>\\r\\n|[\\n-\\r\\x{85}\\x{2028}\\x{2029}])";
        return {};
      case 'N':
        ++at_;
        out += "[^\\n]";
        return {};
      case 'O':
        ++at_;
        out += "(?s:.)";
        return {};
      case 'k': {
        ++at_;
        if (Peek() != '<' && Peek() != '\'') return Wrong("\\k without a name");
        const char close = Peek() == '<' ? '>' : '\'';
        ++at_;
        CMF_TRY(const std::string name, Name(close));
        const bool is_number = name.find_first_not_of("0123456789") == std::string::npos;
        PutReference(fmt::format("\\{}{{{}}}", is_number ? 'g' : 'k', name), flags, out);
        return {};
      }
      case 'g':
        return Unsupported("a call of a group (\\g)");
      case 'y':
      case 'Y':
        return Unsupported("a text segment boundary");
      default:
        break;
    }
    if (c >= '1' && c <= '9') {
      int number = 0;
      while (Peek() >= '0' && Peek() <= '9' && number < 1000) number = number * 10 + (pattern_[at_++] - '0');
      PutReference(fmt::format("\\g{{{}}}", number), flags, out);
      return {};
    }
    CMF_TRY(const Member member, EscapedMember());
    if (member.set) return PutSet(flags.ignore_case ? CaseClosure(*member.set) : *member.set, out);
    PutLiteral(member.code_point, flags, out);
    return {};
  }

  // What stands for one character or a set, inside a class and outside.
  struct Member {
    uint32_t code_point = 0;
    std::optional<CodePointSet> set;
  };

  static Member OfSet(const CodePointSet& set, bool is_negated) {
    return {0, is_negated ? set.Complement() : set};
  }

  // After the '\'.
  Result<Member> EscapedMember() {
    const uint32_t c = TakeCodePoint();
    switch (c) {
      case 'w':
      case 'W':
        return OfSet(WordSet(), c == 'W');
      case 's':
      case 'S':
        return OfSet(SpaceSet(), c == 'S');
      case 'd':
      case 'D':
        return OfSet(DigitSet(), c == 'D');
      case 'h':
      case 'H':
        return OfSet(HexDigitSet(), c == 'H');
      case 'p':
      case 'P':
        return Property(c == 'P');
      case 't':
        return Member{'\t', {}};
      case 'n':
        return Member{'\n', {}};
      case 'r':
        return Member{'\r', {}};
      case 'f':
        return Member{'\f', {}};
      case 'v':
        return Member{'\v', {}};
      case 'a':
        return Member{'\a', {}};
      case 'e':
        return Member{0x1B, {}};
      case 'c': {
        if (AtEnd() || static_cast<uint8_t>(Peek()) >= 0x80) return Wrong("\\c without a letter");
        return Member{static_cast<uint32_t>(pattern_[at_++]) & 0x1Fu, {}};
      }
      case 'x':
        return HexCharacter();
      case 'u': {
        CMF_TRY(const uint32_t value, Digits(16, 4, 4));
        return CheckedCodePoint(value);
      }
      case '0': {
        CMF_TRY(const uint32_t value, Digits(8, 0, 2));
        return Member{value, {}};
      }
      case 'C':
      case 'M':
        return Unsupported("\\C- and \\M-");
      default:
        return Member{c, {}};
    }
  }

  Result<Member> CheckedCodePoint(uint32_t value) {
    if (value > unicode::kMaxCodePoint || (value >= 0xD800 && value <= 0xDFFF))
      return Wrong("not a code point");
    return Member{value, {}};
  }

  Result<Member> HexCharacter() {
    if (Take("{")) {
      CMF_TRY(const uint32_t value, Digits(16, 1, 8));
      if (!Take("}")) return Wrong("'\\x{' is never closed");
      return CheckedCodePoint(value);
    }
    CMF_TRY(const uint32_t value, Digits(16, 0, 2));
    if (value >= 0x80) return Unsupported("\\x with a byte above 7F");
    return Member{value, {}};
  }

  Result<uint32_t> Digits(uint32_t base, int at_least, int at_most) {
    uint32_t value = 0;
    int count = 0;
    for (; count < at_most; ++count) {
      const char c = Peek();
      uint32_t digit = 99;
      if (c >= '0' && c <= '9') digit = static_cast<uint32_t>(c - '0');
      if (c >= 'a' && c <= 'f') digit = static_cast<uint32_t>(c - 'a' + 10);
      if (c >= 'A' && c <= 'F') digit = static_cast<uint32_t>(c - 'A' + 10);
      if (digit >= base) break;
      value = value * base + digit;
      ++at_;
    }
    if (count < at_least) return Wrong("too few digits");
    return value;
  }

  // After "\p" or "\P".
  Result<Member> Property(bool is_negated) {
    if (!Take("{")) return Wrong("\\p without '{'");
    if (Take("^")) is_negated = !is_negated;
    const size_t close = pattern_.find('}', at_);
    if (close == std::string_view::npos) return Wrong("'\\p{' is never closed");
    const std::string_view name = pattern_.substr(at_, close - at_);
    const auto set = PropertySet(name);
    if (!set) return Unsupported(fmt::format("the property '{}'", name));
    at_ = close + 1;
    return OfSet(*set, is_negated);
  }

  // After the '['; takes the ']'. Members joined, intersected at "&&", negated as a whole.
  Result<CodePointSet> Class(int depth, Flags flags) {
    if (depth > kMaxDepth) {
      return Fail(ErrorKind::kLimit, fmt::format("pattern: classes nested deeper than {}", kMaxDepth));
    }
    if (++classes_ > kMaxClasses) {
      return Fail(ErrorKind::kLimit, fmt::format("pattern: more than {} classes", kMaxClasses));
    }
    const bool is_negated = Take("^");
    std::optional<CodePointSet> intersection;
    std::vector<unicode::CodePointRange> ranges;
    const auto add = [&](const CodePointSet& set) {
      ranges.insert(ranges.end(), set.ranges().begin(), set.ranges().end());
    };
    const auto operand = [&] {
      CodePointSet set = CodePointSet::Of(std::exchange(ranges, {}));
      if (flags.ignore_case) set = CaseClosure(set);
      return intersection ? intersection->Intersect(set) : set;
    };
    // A ']' that comes first is a member, provided that another one closes the class.
    bool is_first = true;
    while (true) {
      if (AtEnd()) return Wrong("'[' is never closed");
      if (Peek() == ']' && !(is_first && pattern_.find(']', at_ + 1) != std::string_view::npos)) {
        ++at_;
        break;
      }
      is_first = false;
      if (Take("&&")) {
        intersection = operand();
        continue;
      }
      if (Peek() == '[') {
        if (Peek(1) == ':') {
          CMF_TRY(const std::optional<CodePointSet> posix, Posix());
          if (posix) {
            add(*posix);
            continue;
          }
        }
        ++at_;
        CMF_TRY(const CodePointSet nested, Class(depth + 1, flags));
        add(nested);
        continue;
      }
      CMF_TRY(const Member low, ClassMember());
      if (low.set) {
        add(*low.set);
        continue;
      }
      // "a-z", but "a-]" and "a-[" and "a-&&" hold a literal '-'.
      if (Peek() != '-' || Peek(1) == ']' || Peek(1) == '[' || at_ + 1 >= pattern_.size() ||
          pattern_.substr(at_ + 1, 2) == "&&") {
        ranges.push_back({low.code_point, low.code_point});
        continue;
      }
      ++at_;
      CMF_TRY(const Member high, ClassMember());
      if (high.set) {  // "a-\d": the '-' is literal
        ranges.push_back({low.code_point, low.code_point});
        ranges.push_back({'-', '-'});
        add(*high.set);
        continue;
      }
      if (high.code_point < low.code_point) return Wrong("a range that runs backwards");
      ranges.push_back({low.code_point, high.code_point});
    }
    const CodePointSet set = operand();
    return is_negated ? set.Complement() : set;
  }

  Result<Member> ClassMember() {
    if (!Take("\\")) return Member{TakeCodePoint(), {}};
    if (AtEnd()) return Wrong("a lone '\\' at the end");
    if (Take("b")) return Member{'\b', {}};
    if (Take("R") || Take("X")) return Unsupported("this escape in a class");
    if (Peek() >= '1' && Peek() <= '7') {
      CMF_TRY(const uint32_t value, Digits(8, 1, 3));
      return Member{value, {}};
    }
    return EscapedMember();
  }

  // "[:alpha:]" and "[:^alpha:]"; nothing when it turns out to be an ordinary class.
  Result<std::optional<CodePointSet>> Posix() {
    const size_t end = pattern_.find(":]", at_ + 2);
    if (end == std::string_view::npos) return std::nullopt;
    std::string_view name = pattern_.substr(at_ + 2, end - at_ - 2);
    const bool is_negated = !name.empty() && name[0] == '^';
    if (is_negated) name.remove_prefix(1);
    if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz") != std::string_view::npos) return std::nullopt;
    auto set = PosixSet(name);
    if (!set) return std::nullopt;
    at_ = end + 2;
    return is_negated ? std::optional(set->Complement()) : set;
  }

  // --- the output ---

  Result<std::string> ClassText(const CodePointSet& set) {
    if (++classes_ > kMaxClasses) {
      return Fail(ErrorKind::kLimit, fmt::format("pattern: more than {} classes", kMaxClasses));
    }
    return WriteClass(set);
  }

  Result<void> PutSet(const CodePointSet& set, std::string& out) {
    CMF_TRY(const std::string text, ClassText(set));
    out += text;
    return {};
  }

  static void PutReference(const std::string& reference, Flags flags, std::string& out) {
    out += flags.ignore_case ? fmt::format("(?i:{})", reference) : reference;
  }

  void PutLiteral(uint32_t c, Flags flags, std::string& out) {
    if (flags.ignore_case) {
      const CodePointSet closed = CaseClosure(CodePointSet::Of({{c, c}}));
      if (closed.ranges().size() > 1 || closed.ranges()[0].first != closed.ranges()[0].last) {
        out += WriteClass(closed);
        return;
      }
    }
    out += WriteCodePoint(c);
  }

  std::string_view pattern_;
  size_t at_ = 0;
  int classes_ = 0;
};

}  // namespace

Result<std::string> TranslatePattern(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return Fail(ErrorKind::kLimit,
                fmt::format("pattern: {} bytes, at most {}", pattern.size(), kMaxPatternBytes));
  }
  if (const size_t valid = utf8::ValidPrefix(pattern); valid != pattern.size()) {
    return Fail(ErrorKind::kCorrupt, fmt::format("pattern: byte {}: not UTF-8", valid));
  }
  return Translator(pattern).Run();
}

}  // namespace cmforge
