// room: text
// A hostile template: parsing and rendering end in text or in an error, within small bounds.
#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "text/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cmforge;  // NOLINT
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto parsed = jinja::Template::Parse(source, "fuzz");
  if (!parsed) return 0;
  static const Json context = {
      {"messages",
       {{{"role", "user"}, {"content", "a <|im_end|> b"}}, {{"role", "assistant"}, {"content", nullptr}}}},
      {"tools", nullptr},
      {"x", 3},
      {"y", 2.5},
      {"s", "text"},
      {"add_generation_prompt", true}};
  jinja::RenderOptions options;
  options.now = jinja::LocalTime{};
  options.limits = {.steps = 100'000, .output_bytes = 1 << 16, .memory_bytes = 8 << 20};
  (void)parsed->Render(context, options);
  return 0;
}
