// The post-processors.
#include "text/tokenizer/post_processor.h"

#include <algorithm>
#include <limits>

#include "text/tokenizer/component.h"

namespace cmforge {

namespace {

Result<TokenId> IdFrom(const Component& component, const Json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > std::numeric_limits<TokenId>::max()) {
    return component.Wrong("a token id that is no number of 0 to 2147483647");
  }
  return static_cast<TokenId>(value.get<uint64_t>());
}

// ["[SEP]", 102]
Result<TokenId> NamedId(const Component& component, std::string_view key) {
  CMF_TRY(const Json* pair, component.Array(key));
  if (pair->size() != 2 || !(*pair)[0].is_string()) {
    return component.Wrong(fmt::format("'{}' is not a pair of token and id", key));
  }
  return IdFrom(component, (*pair)[1]);
}

}  // namespace

// [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
Result<PostProcessor::Template> PostProcessor::ReadTemplate(const Component& component, const char* key) {
  CMF_TRY(const Json* list, component.Array(key));
  const Json* special = component.Find("special_tokens");
  if (!special || !special->is_object()) return component.Wrong("'special_tokens' is not an object");
  Template items;
  for (const Json& entry : *list) {
    const bool is_item = entry.is_object() && entry.size() == 1 && entry.begin()->is_object() &&
                         entry.begin()->contains("id") && (*entry.begin())["id"].is_string();
    if (!is_item)
      return component.Wrong(fmt::format("'{}' has an item that is no SpecialToken or Sequence", key));
    const auto id = (*entry.begin())["id"].get<std::string>();
    const std::string& kind = entry.begin().key();
    if (kind == "Sequence") {
      if (id != "A" && id != "B")
        return component.Wrong(fmt::format("'{}' has a sequence '{}'", key, id.substr(0, 100)));
      items.push_back({id == "A" ? Item::Kind::kFirst : Item::Kind::kSecond, {}});
    } else if (kind == "SpecialToken") {
      const auto token = special->find(id);
      if (token == special->end() || !token->is_object() || !token->contains("ids") ||
          !(*token)["ids"].is_array()) {
        return component.Wrong(fmt::format("'special_tokens' has no ids for '{}'", id.substr(0, 100)));
      }
      Item item{Item::Kind::kIds, {}};
      for (const Json& value : (*token)["ids"]) {
        CMF_TRY(const TokenId token_id, IdFrom(component, value));
        item.ids.push_back(token_id);
      }
      items.push_back(std::move(item));
    } else {
      return component.Wrong(fmt::format("'{}' has an item '{}'", key, kind.substr(0, 100)));
    }
  }
  return items;
}

Result<void> PostProcessor::AddSteps(const Json& json, std::vector<Step>& steps) {
  CMF_TRY(const Component component, Component::Of(json, "post-processor"));
  const std::string_view type = component.type();
  if (type == "ByteLevel") return {};  // moves offsets only
  if (type == "Sequence") {
    CMF_TRY(const Json* list, component.Array("processors"));
    for (const Json& step : *list) CMF_CHECK(AddSteps(step, steps));
    return {};
  }
  Step step;
  if (type == "TemplateProcessing") {
    CMF_TRY(step.single, ReadTemplate(component, "single"));
    CMF_TRY(step.pair, ReadTemplate(component, "pair"));
    for (const Item& item : step.single) {
      if (item.kind == Item::Kind::kSecond) return component.Wrong("'single' has a sequence 'B'");
    }
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    CMF_TRY(const TokenId cls_id, NamedId(component, "cls"));
    CMF_TRY(const TokenId sep_id, NamedId(component, "sep"));
    const Item cls{Item::Kind::kIds, {cls_id}}, sep{Item::Kind::kIds, {sep_id}};
    const Item first{Item::Kind::kFirst, {}}, second{Item::Kind::kSecond, {}};
    step.single = {cls, first, sep};
    step.pair = step.single;
    if (type == "RobertaProcessing") step.pair.push_back(sep);
    step.pair.push_back(second);
    step.pair.push_back(sep);
  } else {
    return component.UnknownType();
  }
  steps.push_back(std::move(step));
  return {};
}

Result<PostProcessor> PostProcessor::FromJson(const Json& json) {
  PostProcessor processor;
  if (!json.is_null()) CMF_CHECK(AddSteps(json, processor.steps_));
  // Templates that repeat a text multiply it; without a bound a small file could fill the memory.
  constexpr size_t kMaxRepeats = 16;
  size_t repeats = 1;
  for (const Step& step : processor.steps_) {
    const auto texts = [](const Template& items) {
      return static_cast<size_t>(std::count_if(
          items.begin(), items.end(), [](const Item& item) { return item.kind != Item::Kind::kIds; }));
    };
    repeats *= std::max<size_t>(1, std::max(texts(step.single), texts(step.pair) / 2));
    if (repeats > kMaxRepeats) {
      return Fail(ErrorKind::kLimit,
                  fmt::format("post-processor: the text occurs more than {} times", kMaxRepeats));
    }
  }
  // What a single text gets in front and behind: the first text itself shows where.
  for (const Step& step : processor.steps_) {
    std::vector<TokenId> before, after;
    bool is_before = true;
    for (const Item& item : step.single) {
      if (item.kind != Item::Kind::kIds) is_before = false;
      auto& side = is_before ? before : after;
      side.insert(side.end(), item.ids.begin(), item.ids.end());
    }
    processor.prefix_.insert(processor.prefix_.begin(), before.begin(), before.end());
    processor.suffix_.insert(processor.suffix_.end(), after.begin(), after.end());
  }
  return processor;
}

size_t PostProcessor::AddedCount(bool is_pair) const {
  size_t count = 0;
  for (const Step& step : steps_) {
    for (const Item& item : is_pair ? step.pair : step.single) count += item.ids.size();
  }
  return count;
}

std::vector<TokenId> PostProcessor::Apply(const std::vector<TokenId>& first,
                                          const std::vector<TokenId>* second, bool add_special) const {
  std::vector<TokenId> now = first;
  const std::vector<TokenId>* pair = second;
  for (const Step& step : steps_) {
    std::vector<TokenId> next;
    for (const Item& item : pair ? step.pair : step.single) {
      const std::vector<TokenId>& ids = item.kind == Item::Kind::kFirst    ? now
                                        : item.kind == Item::Kind::kSecond ? *pair
                                                                           : item.ids;
      if (item.kind != Item::Kind::kIds || add_special) next.insert(next.end(), ids.begin(), ids.end());
    }
    now = std::move(next);
    pair = nullptr;  // from here on it is one sequence
  }
  if (pair) now.insert(now.end(), pair->begin(), pair->end());
  return now;
}

}  // namespace cmforge
