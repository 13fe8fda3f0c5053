// Keys of meta.yaml that a map has twice. The tree that parsers make of a text no longer tells: its events do.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <sstream>

#include "coreml/lint/package.h"

namespace cmforge::coreml::lint {
namespace {

class DoubleKeys : public YAML::EventHandler {
 public:
  explicit DoubleKeys(Findings& findings) : findings_(findings) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { Take(mark, ""); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { Take(mark, ""); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                const std::string& text) override {
    Take(mark, text);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    Take(mark, "");
    open_.push_back({false, false, {}, {}});
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    Take(mark, "");
    open_.push_back({true, true, {}, {}});
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  struct Level {
    bool is_map = false;
    bool is_key_next = false;
    std::string key;                  // the last one
    std::map<std::string, int> seen;  // its line, from 1
  };

  /// A node of the level: in a map every other one is a key. "" stands for what is no plain text, or a "..." that
  /// listings have for what they leave out.
  void Take(const YAML::Mark& mark, const std::string& text) {
    if (open_.empty() || !open_.back().is_map) return;
    Level& level = open_.back();
    const bool is_key = level.is_key_next;
    level.is_key_next = !is_key;
    if (!is_key) return;
    level.key = text;
    const auto [it, is_new] = level.seen.emplace(text, mark.line + 1);
    if (is_new || text.empty() || text == "...") return;
    std::string place;
    for (size_t i = 0; i + 1 < open_.size(); ++i) {
      if (open_[i].is_map) place += open_[i].key + ".";
    }
    findings_.Add(rules::kMetaTwice, "meta.yaml",
                  fmt::format("'{}{}' in line {} and in line {}: some readers take the first, some the last, "
                              "some neither",
                              place, text, it->second, mark.line + 1));
  }

  std::vector<Level> open_;
  Findings& findings_;
};

}  // namespace

void CheckDoubleKeys(const std::string& yaml, Findings& findings) {
  std::istringstream text(yaml);
  DoubleKeys keys(findings);
  try {  // what is no YAML is told where it is read
    YAML::Parser(text).HandleNextDocument(keys);
  } catch (const YAML::Exception&) {
  }
}

}  // namespace cmforge::coreml::lint
