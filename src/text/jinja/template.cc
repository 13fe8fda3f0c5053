// Parsing and rendering from outside: the context comes in as JSON, messages get the template's name and
// line.
#include "text/jinja/template.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/json.h"
#include "text/jinja/dict.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/lexer.h"
#include "text/jinja/parser.h"
#include "text/jinja/print.h"
#include "text/jinja/program.h"
#include "text/jinja/scopes.h"

namespace cmforge::jinja {
namespace {

class ContextReader {
 public:
  explicit ContextReader(Runtime& rt) : rt_(rt), traced_(rt.options.traced) {
    std::sort(traced_.begin(), traced_.end());
  }

  Result<Value> Read(const Json& json, int depth = 0) {
    if (!rt_.Spend()) return rt_.LimitFault();
    if (depth > kMaxDataDepth) return DepthFault();
    switch (json.type()) {
      case Json::value_t::boolean:
        return Value::Bool(json.get<bool>());
      case Json::value_t::number_integer:
        return Value::Int(json.get<int64_t>());
      case Json::value_t::number_unsigned:
        return rt_.Integer(BigInt::FromUnsigned(json.get<uint64_t>()));
      case Json::value_t::number_float:
        return Value::Float(json.get<double>());
      case Json::value_t::string:
        return ReadString(json);
      case Json::value_t::array: {
        std::vector<Value> items;
        for (const Json& item : json) {
          CMF_TRY(const Value value, Read(item, depth + 1));
          items.push_back(value);
        }
        return rt_.NewList(items);
      }
      case Json::value_t::object:
        return ReadObject(json, depth);
      default:
        return Value::None();
    }
  }

  Result<Value> ReadObject(const Json& json, int depth) {
    Dict* dict = rt_.heap.New<Dict>();
    for (auto it = json.begin(); it != json.end(); ++it) {
      CMF_TRY(const Value value, Read(it.value(), depth + 1));
      CMF_CHECK(SetKey(rt_, dict, rt_.View(std::string_view(it.key())), value));
    }
    return DictValue(dict);
  }

 private:
  // Strings are used where they lie: the context outlives the rendering.
  Result<Value> ReadString(const Json& json) {
    const std::string& text = json.get_ref<const std::string&>();
    Str* string = rt_.heap.New<Str>(text.data(), text.size());
    if (!text.empty() && std::binary_search(traced_.begin(), traced_.end(), &json)) {
      const std::span<TraceRange> whole = rt_.heap.NewArray<TraceRange>(1);
      whole[0] = {0, text.size()};
      string->traced = whole;
    }
    return Value::Of(string);
  }

  Runtime& rt_;
  std::vector<const Json*> traced_;
};

Result<void> Run(Runtime& rt, const Program& program, const Json& context, TextBuilder* out) {
  if (!context.is_object()) return Fail(ErrorKind::kUsage, "the variables of a template are a JSON object");
  CMF_TRY(const Value variables, ContextReader(rt).ReadObject(context, 0));
  rt.line = 1;
  return Interpreter(rt, program, variables.dict).Run(out);
}

}  // namespace

const Block* FindBlock(const Program& program, std::string_view name) {
  for (const Block& block : program.blocks) {
    if (block.name == name) return &block;
  }
  return nullptr;
}

Result<std::shared_ptr<const Program>> ParseProgram(std::string_view source, std::string_view name,
                                                    const TemplateOptions& options) {
  auto program = std::make_shared<Program>();
  program->name = std::string(name);
  const auto parse = [&]() -> Result<void> {
    CMF_TRY(const std::vector<Token> tokens, Tokenize(source, options, &program->has_surrogates));
    CMF_CHECK(ParseTokens(tokens, program.get()));
    return BindNames(program.get());
  };
  if (Result<void> parsed = parse(); !parsed) {
    Error error = std::move(parsed).error();
    error.message = fmt::format("{}:{}", name, error.message);  // the message begins with the line
    return Fail(std::move(error));
  }
  return std::shared_ptr<const Program>(std::move(program));
}

std::string MacroText(const Macro& macro) {
  if (macro.source->name.empty()) return "<Macro anonymous>";
  return fmt::format("<Macro '{}'>", macro.source->name);
}

Result<Template> Template::Parse(std::string_view source, std::string_view name,
                                 const TemplateOptions& options) {
  CMF_TRY(std::shared_ptr<const Program> program, ParseProgram(source, name, options));
  return Template(std::move(program));
}

Result<Rendering> Template::RenderTraced(const Json& context, const RenderOptions& options) const {
  Runtime rt(options);
  TextBuilder out(rt);
  if (Result<void> run = Run(rt, *program_, context, &out); !run) {
    Error error = std::move(run).error();
    if (error.name != error_name::kRaised)
      error.message = fmt::format("{}:{}: {}", program_->name, rt.line, error.message);
    return Fail(std::move(error));
  }
  Rendering rendering;
  for (const TraceRange& r : out.traced()) rendering.traced.push_back({r.begin, r.end});
  rendering.text = out.Take();
  if (program_->has_surrogates && !IsUtf8(rendering.text)) {
    return Fault(error_name::kRuntime,
                 fmt::format("{}: surrogates in the text: it cannot be UTF-8", program_->name));
  }
  return rendering;
}

Result<std::string> Template::Render(const Json& context, const RenderOptions& options) const {
  CMF_TRY(Rendering rendering, RenderTraced(context, options));
  return std::move(rendering.text);
}

}  // namespace cmforge::jinja
