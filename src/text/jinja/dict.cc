// Entries in an array, an open addressing index beside it once there are more than a few.
#include "text/jinja/dict.h"

#include <algorithm>

#include "text/jinja/compare.h"

namespace cmforge::jinja {
namespace {

constexpr uint64_t kUnindexed = 8;  // so many entries are searched one by one

void AddToIndex(Dict* dict, uint64_t entry) {
  const uint64_t mask = dict->index_size - 1;
  uint64_t slot = dict->entries[entry].hash & mask;
  while (dict->index[slot] != 0) slot = (slot + 1) & mask;
  dict->index[slot] = static_cast<uint32_t>(entry + 1);
}

void RebuildIndex(Dict* dict) {
  std::fill_n(dict->index, dict->index_size, 0u);
  for (uint64_t i = 0; i < dict->size; ++i) AddToIndex(dict, i);
}

Result<void> AddEntry(Runtime& rt, Dict* dict, const Dict::Entry& entry) {
  if (dict->size == dict->capacity) {
    const uint64_t capacity = std::max<uint64_t>(4, dict->capacity * 2);
    if (capacity > UINT32_MAX) return rt.LimitFault();
    CMF_CHECK(rt.Reserve(capacity * (sizeof(Dict::Entry) + 8)));
    const std::span<Dict::Entry> entries = rt.heap.NewArray<Dict::Entry>(capacity);
    std::copy_n(dict->entries, dict->size, entries.begin());
    dict->entries = entries.data();
    dict->capacity = capacity;
    if (capacity > kUnindexed) {
      dict->index_size = capacity * 2;
      dict->index = rt.heap.NewArray<uint32_t>(dict->index_size).data();
      RebuildIndex(dict);
    }
  }
  dict->entries[dict->size++] = entry;
  if (dict->index != nullptr) AddToIndex(dict, dict->size - 1);
  return {};
}

Dict::Entry* FindEntry(const Dict& dict, const Value& key, uint64_t hash) {
  const auto matches = [&](const Dict::Entry& e) { return e.hash == hash && KeyEqual(e.key, key); };
  if (dict.index == nullptr) {
    for (Dict::Entry& e : dict.span()) {
      if (matches(e)) return &e;
    }
    return nullptr;
  }
  const uint64_t mask = dict.index_size - 1;
  for (uint64_t slot = hash & mask; dict.index[slot] != 0; slot = (slot + 1) & mask) {
    Dict::Entry& e = dict.entries[dict.index[slot] - 1];
    if (matches(e)) return &e;
  }
  return nullptr;
}

}  // namespace

Result<Value*> FindKey(const Dict& dict, const Value& key) {
  CMF_TRY(const uint64_t hash, Hash(key));
  return FindHashed(dict, key, hash);
}

Value* FindHashed(const Dict& dict, const Value& key, uint64_t hash) {
  Dict::Entry* entry = FindEntry(dict, key, hash);
  return entry == nullptr ? nullptr : &entry->value;
}

Value* FindText(const Dict& dict, std::string_view key) {
  const Str text{key.data(), key.size()};
  const Value value = Value::Of(&text);
  return FindHashed(dict, value, *Hash(value));
}

Result<void> SetKey(Runtime& rt, Dict* dict, const Value& key, const Value& value) {
  CMF_TRY(const uint64_t hash, Hash(key));
  if (Dict::Entry* entry = FindEntry(*dict, key, hash)) {
    entry->value = value;
    return {};
  }
  return AddEntry(rt, dict, {key, value, hash});
}

Result<void> SetText(Runtime& rt, Dict* dict, std::string_view key, const Value& value) {
  if (Value* old = FindText(*dict, key)) {
    *old = value;
    return {};
  }
  CMF_TRY(const Value copy, rt.Text(key));
  return SetKey(rt, dict, copy, value);
}

void RemoveEntry(Dict* dict, uint64_t at) {
  std::copy(dict->entries + at + 1, dict->entries + dict->size, dict->entries + at);
  --dict->size;
  if (dict->index != nullptr) RebuildIndex(dict);
}

Result<Dict*> CopyDict(Runtime& rt, const Dict& dict) {
  Dict* copy = rt.heap.New<Dict>();
  for (const Dict::Entry& e : dict.span()) CMF_CHECK(AddEntry(rt, copy, e));
  return copy;
}

}  // namespace cmforge::jinja
