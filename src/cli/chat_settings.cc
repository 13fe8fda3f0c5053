// The table of settings.
#include "cli/chat_settings.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace cmforge::cli {
namespace {

struct Setting {
  std::string_view name;
  std::string (*show)(const ChatOptions&);
  bool (*set)(ChatOptions&, std::string_view);  // false: the text is no such value
};

template <class Number>  // a whole one
bool Parse(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

bool Parse(std::string_view text, double& number) {
  const std::string copy(text);
  char* end = nullptr;
  number = std::strtod(copy.c_str(), &end);
  return !copy.empty() && *end == '\0';
}

template <double SamplingOptions::*kField>
constexpr Setting Real(std::string_view name) {
  return {name, [](const ChatOptions& o) { return fmt::format("{:g}", o.generate.sampling.*kField); },
          [](ChatOptions& o, std::string_view text) { return Parse(text, o.generate.sampling.*kField); }};
}

constexpr Setting kSettings[] = {
    {"max-tokens", [](const ChatOptions& o) { return fmt::format("{}", o.generate.max_tokens); },
     [](ChatOptions& o, std::string_view text) {
       return Parse(text, o.generate.max_tokens) && o.generate.max_tokens >= 0;
     }},
    Real<&SamplingOptions::temperature>("temperature"),
    {"top-k", [](const ChatOptions& o) { return fmt::format("{}", o.generate.sampling.top_k); },
     [](ChatOptions& o, std::string_view text) { return Parse(text, o.generate.sampling.top_k); }},
    Real<&SamplingOptions::top_p>("top-p"),
    Real<&SamplingOptions::min_p>("min-p"),
    Real<&SamplingOptions::typical_p>("typical-p"),
    Real<&SamplingOptions::repetition_penalty>("rep-penalty"),
    Real<&SamplingOptions::presence_penalty>("presence-penalty"),
    Real<&SamplingOptions::frequency_penalty>("frequency-penalty"),
    {"seed", [](const ChatOptions& o) { return fmt::format("{}", o.generate.sampling.seed); },
     [](ChatOptions& o, std::string_view text) { return Parse(text, o.generate.sampling.seed); }},
    {"think",
     [](const ChatOptions& o) {
       const auto at = o.variables.find("enable_thinking");
       return std::string(at == o.variables.end() ? "as the model's template has it"
                          : at->get<bool>()       ? "on"
                                                  : "off");
     },
     [](ChatOptions& o, std::string_view text) {
       if (text == "on" || text == "off") o.variables["enable_thinking"] = text == "on";
       return text == "on" || text == "off";
     }},
};

std::string Line(const Setting& setting, const ChatOptions& options) {
  return fmt::format("{:<18} {}", setting.name, setting.show(options));
}

}  // namespace

std::string ShowSettings(const ChatOptions& options) {
  std::string text;
  for (const Setting& setting : kSettings) text += (text.empty() ? "" : "\n") + Line(setting, options);
  return text;
}

Result<std::string> ChangeSetting(ChatOptions& options, std::string_view argument) {
  const size_t end = argument.find_first_of(" \t=");
  const std::string_view name = argument.substr(0, end);
  const size_t begin = end == argument.npos ? end : argument.find_first_not_of(" \t=", end);
  std::string_view value = begin == argument.npos ? "" : argument.substr(begin);
  value = value.substr(0, value.find_last_not_of(" \t") + 1);
  const auto* setting = std::find_if(std::begin(kSettings), std::end(kSettings),
                                     [&](const Setting& s) { return s.name == name; });
  if (setting == std::end(kSettings)) {
    return Fail(ErrorKind::kUsage, fmt::format("/set: no setting '{}': /set alone lists them", name));
  }
  if (!value.empty()) {
    ChatOptions changed = options;
    if (!setting->set(changed, value)) {
      return Fail(ErrorKind::kUsage, fmt::format("/set {}: '{}' is not a value it can take: it is {} now",
                                                 name, value, setting->show(options)));
    }
    CMF_CHECK(changed.generate.sampling.Check());
    options = std::move(changed);
  }
  return Line(*setting, options);
}

}  // namespace cmforge::cli
