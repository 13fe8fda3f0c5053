// strftime without a locale, and the machine's clock.
#include "text/jinja/clock.h"

#include <fmt/format.h>

#include <chrono>
#include <ctime>

#include "text/jinja/runtime.h"

namespace cmforge::jinja {
namespace {

constexpr std::string_view kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                      "Thursday", "Friday", "Saturday"};
constexpr std::string_view kMonths[] = {"January",   "February", "March",    "April",
                                        "May",       "June",     "July",     "August",
                                        "September", "October",  "November", "December"};

bool IsLeap(int year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

int DaysOfMonth(int year, int month) {
  static constexpr int kDaysOf[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return kDaysOf[month - 1] + (month == 2 && IsLeap(year) ? 1 : 0);
}

int DayOfYear(const LocalTime& t) {  // from 0
  int days = t.day - 1;
  for (int m = 1; m < t.month; ++m) days += DaysOfMonth(t.year, m);
  return days;
}

// Days since 1970-01-01.
int64_t DaysSinceEpoch(const LocalTime& t) {
  const int64_t y = t.year - 1;
  return y * 365 + y / 4 - y / 100 + y / 400 - 719162 + DayOfYear(t);
}

int DayOfWeek(const LocalTime& t) {  // Sunday is 0
  return static_cast<int>(((DaysSinceEpoch(t) + 4) % 7 + 7) % 7);
}

struct WeekDate {
  int year = 0;
  int week = 0;
};

WeekDate IsoWeek(const LocalTime& t) {
  const int weekday = (DayOfWeek(t) + 6) % 7;  // Monday is 0
  int week = (DayOfYear(t) - weekday + 10) / 7;
  const auto weeks_in = [](int year) {
    const int first = DayOfWeek({.year = year});
    return first == 4 || (first == 3 && IsLeap(year)) ? 53 : 52;
  };
  if (week < 1) return {t.year - 1, weeks_in(t.year - 1)};
  if (week > weeks_in(t.year)) return {t.year + 1, 1};
  return {t.year, week};
}

struct Directive {
  char flag = 0;
  int width = -1;
  bool upper = false;
  bool swap = false;
};

std::string Number(int64_t value, int width, char pad, const Directive& d) {
  if (d.flag == '-') width = 0;
  if (d.flag == '_') pad = ' ';
  if (d.flag == '0') pad = '0';
  if (d.width >= 0) width = d.width;
  std::string digits = std::to_string(value);
  if (static_cast<int>(digits.size()) < width)
    digits.insert(0, static_cast<size_t>(width) - digits.size(), pad);
  return digits;
}

std::string Word(std::string_view word, const Directive& d, bool swaps_to_lower = false) {
  std::string text(word);
  for (char& c : text) {
    const bool is_lower = c >= 'a' && c <= 'z';
    const bool is_upper = c >= 'A' && c <= 'Z';
    if (is_lower && (d.upper || (d.swap && !swaps_to_lower))) c = static_cast<char>(c - 32);
    if (is_upper && d.swap && swaps_to_lower) c = static_cast<char>(c + 32);
  }
  if (d.width > static_cast<int>(text.size())) {
    text.insert(0, static_cast<size_t>(d.width) - text.size(), d.flag == '0' ? '0' : ' ');
  }
  return text;
}

// The text of %c; nothing for an unknown directive.
Result<std::string> One(char c, const Directive& d, const LocalTime& t) {
  const int hour12 = t.hour % 12 == 0 ? 12 : t.hour % 12;
  const std::string_view weekday = kDays[DayOfWeek(t)];
  const std::string_view month = kMonths[t.month - 1];
  const auto composed = [&](std::string_view format) -> Result<std::string> {
    CMF_TRY(const std::string text, FormatTime(format, t));
    return Word(text, d);
  };
  switch (c) {
    case 'a':
      return Word(weekday.substr(0, 3), d);
    case 'A':
      return Word(weekday, d);
    case 'b':
    case 'h':
      return Word(month.substr(0, 3), d);
    case 'B':
      return Word(month, d);
    case 'c':
      return composed("%a %b %e %H:%M:%S %Y");
    case 'C':
      return Number(t.year / 100, 2, '0', d);
    case 'd':
      return Number(t.day, 2, '0', d);
    case 'D':
    case 'x':
      return composed("%m/%d/%y");
    case 'e':
      return Number(t.day, 2, ' ', d);
    case 'f':
      return fmt::format("{:06}", t.microsecond);
    case 'F':
      return composed("%Y-%m-%d");
    case 'g':
      return Number(IsoWeek(t).year % 100, 2, '0', d);
    case 'G':
      return Number(IsoWeek(t).year, 4, '0', d);
    case 'H':
      return Number(t.hour, 2, '0', d);
    case 'I':
      return Number(hour12, 2, '0', d);
    case 'j':
      return Number(DayOfYear(t) + 1, 3, '0', d);
    case 'k':
      return Number(t.hour, 2, ' ', d);
    case 'l':
      return Number(hour12, 2, ' ', d);
    case 'm':
      return Number(t.month, 2, '0', d);
    case 'M':
      return Number(t.minute, 2, '0', d);
    case 'n':
      return std::string("\n");
    case 'p':
      return Word(t.hour < 12 ? "AM" : "PM", d, /*swaps_to_lower=*/true);
    case 'P':
      return Word(t.hour < 12 ? "am" : "pm", d);
    case 'r':
      return composed("%I:%M:%S %p");
    case 'R':
      return composed("%H:%M");
    case 's':
      return Number(DaysSinceEpoch(t) * 86400 + t.hour * 3600 + t.minute * 60 + t.second, 1, '0', d);
    case 'S':
      return Number(t.second, 2, '0', d);
    case 't':
      return std::string("\t");
    case 'T':
    case 'X':
      return composed("%H:%M:%S");
    case 'u':
      return Number(DayOfWeek(t) == 0 ? 7 : DayOfWeek(t), 1, '0', d);
    case 'U':
      return Number((DayOfYear(t) + 7 - DayOfWeek(t)) / 7, 2, '0', d);
    case 'V':
      return Number(IsoWeek(t).week, 2, '0', d);
    case 'w':
      return Number(DayOfWeek(t), 1, '0', d);
    case 'W':
      return Number((DayOfYear(t) + 7 - (DayOfWeek(t) + 6) % 7) / 7, 2, '0', d);
    case 'y':
      return Number(t.year % 100, 2, '0', d);
    case 'Y':
      // Years below 1000 are not padded, as glibc does.
      return Number(t.year, d.width, '0', d);
    case 'z':
    case 'Z':
      return std::string();
    case '%':
      return std::string("%");
    default:
      return Fault(error_name::kRuntime, "unknown");
  }
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

Result<std::string> FormatTime(std::string_view format, const LocalTime& time) {
  constexpr size_t kMaxText = 1 << 20;
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 >= format.size()) {
      out += format[i];
      continue;
    }
    const size_t begin = i++;
    Directive d;
    for (; i < format.size(); ++i) {
      const char c = format[i];
      if (c == '^') {
        d.upper = true;
      } else if (c == '#') {
        d.swap = true;
      } else if (c == '-' || c == '_' || c == '0') {
        d.flag = c;
      } else {
        break;
      }
    }
    if (i < format.size() && IsDigit(format[i])) d.width = 0;
    for (; i < format.size() && IsDigit(format[i]) && d.width < 10000; ++i)
      d.width = d.width * 10 + (format[i] - '0');
    if (i < format.size() && (format[i] == 'E' || format[i] == 'O')) ++i;
    if (i >= format.size()) {
      out += format.substr(begin);
      break;
    }
    const Result<std::string> text = One(format[i], d, time);
    out += text ? *text : std::string(format.substr(begin, i + 1 - begin));
    if (out.size() > kMaxText) {
      return Fail(ErrorKind::kLimit, "a date longer than a megabyte", error_name::kLimitReached);
    }
  }
  return out;
}

LocalTime LocalTime::Now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm tm = {};
  localtime_r(&seconds, &tm);
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1'000'000;
  return {tm.tm_year + 1900, tm.tm_mon + 1,           tm.tm_mday, tm.tm_hour, tm.tm_min,
          tm.tm_sec,         static_cast<int>(micros)};
}

Result<LocalTime> LocalTime::ParseIso(std::string_view text) {
  LocalTime t;
  size_t at = 0;
  const auto number = [&](size_t digits, int* out) {
    if (text.size() - at < digits) return false;
    *out = 0;
    for (size_t i = 0; i < digits; ++i, ++at) {
      if (!IsDigit(text[at])) return false;
      *out = *out * 10 + (text[at] - '0');
    }
    return true;
  };
  const auto sign = [&](char c) {
    if (at >= text.size() || text[at] != c) return false;
    ++at;
    return true;
  };
  bool ok = number(4, &t.year) && sign('-') && number(2, &t.month) && sign('-') && number(2, &t.day);
  if (ok && (sign('T') || sign(' '))) {
    ok = number(2, &t.hour) && sign(':') && number(2, &t.minute);
    if (ok && sign(':')) ok = number(2, &t.second);
    if (ok && sign('.')) {
      int scale = 100'000;
      const size_t first = at;
      for (; at < text.size() && IsDigit(text[at]); ++at, scale /= 10)
        t.microsecond += scale * (text[at] - '0');
      ok = at > first;
    }
  }
  ok = ok && at == text.size() && t.year >= 1 && t.month >= 1 && t.month <= 12 && t.day >= 1 &&
       t.day <= DaysOfMonth(t.year, t.month) && t.hour < 24 && t.minute < 60 && t.second < 60;
  if (ok) return t;
  return Fail(ErrorKind::kUsage, fmt::format("'{}' is not a time: write it like 2025-07-26T09:05:07", text));
}

}  // namespace cmforge::jinja
