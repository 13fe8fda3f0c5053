// ParseJson: a SAX handler that builds the tree with its own stack, so depth and duplicates are ours to check.
#include "base/json.h"

#include <unordered_set>
#include <vector>

namespace cmforge {
namespace {

class TreeBuilder {  // the interface nlohmann::json::sax_parse expects
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  bool null() { return Add(nullptr); }
  bool boolean(bool value) { return Add(value); }
  bool number_integer(number_integer_t value) { return Add(value); }
  bool number_unsigned(number_unsigned_t value) { return Add(value); }
  bool number_float(number_float_t value, const string_t&) { return Add(value); }
  bool string(string_t& value) { return Add(std::move(value)); }
  bool binary(binary_t&) { return false; }
  bool start_object(size_t) { return Push(Json::object()); }
  bool start_array(size_t) { return Push(Json::array()); }
  bool end_object() { return Pop(); }
  bool end_array() { return Pop(); }

  bool key(string_t& name) {
    Open& open = stack_.back();
    if (!open.seen.insert(name).second) {
      reason = fmt::format("key '{}' occurs twice", name);
      return false;
    }
    open.key = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    std::string_view text =
        error.what();  // "[json.exception.parse_error.101] parse error at line 1, column 5: ..."
    if (const size_t at = text.find("] "); at != text.npos) text.remove_prefix(at + 2);
    reason = fmt::format("not valid JSON near byte {}: {}", position, text);
    return false;
  }

  Json root;
  std::string reason;

 private:
  struct Open {
    Json value;
    std::string key;
    std::unordered_set<std::string> seen;
  };

  bool Add(Json value) {
    if (stack_.empty()) {
      root = std::move(value);
    } else if (Open& open = stack_.back(); open.value.is_array()) {
      open.value.push_back(std::move(value));
    } else {
      // Appended without the map's own linear search: `seen` has ruled out duplicates already.
      using Items = std::vector<std::pair<const std::string, Json>, Json::object_t::allocator_type>;
      static_cast<Items&>(open.value.get_ref<Json::object_t&>())
          .emplace_back(std::move(open.key), std::move(value));
    }
    return true;
  }
  bool Push(Json value) {
    if (stack_.size() >= kMaxJsonDepth) {
      reason = fmt::format("nested deeper than {} levels", kMaxJsonDepth);
      return false;
    }
    stack_.push_back({std::move(value), {}, {}});
    return true;
  }
  bool Pop() {
    Json done = std::move(stack_.back().value);
    stack_.pop_back();
    return Add(std::move(done));
  }

  std::vector<Open> stack_;
};

}  // namespace

Result<Json> ParseJson(std::string_view text, std::string_view what) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  TreeBuilder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return Fail(ErrorKind::kCorrupt, fmt::format("{}: {}", what, builder.reason), "Parse");
  }
  return std::move(builder.root);
}

std::string DumpJson(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace cmforge
