// CompareModels.
#include "convert/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "base/json.h"
#include "cmf/hash64.h"
#include "cmf/header.h"
#include "cmf/skills.h"
#include "quant/encoding.h"

namespace cmforge {
namespace {

constexpr int64_t kBatch = 64;                        // tensors hashed between two looks at `cancelled`
constexpr int64_t kBlockElements = int64_t{1} << 18;  // decoded at once by a thread

std::string Dump(const Json* value) { return value == nullptr ? std::string() : DumpJson(*value); }

// Members of two objects that differ, nested ones as "moe.top_k".
void CompareObjects(const Json& a, const Json& b, const std::string& prefix,
                    std::vector<ValueChange>& changes) {
  const auto find = [](const Json& object, const std::string& key) -> const Json* {
    const auto it = object.find(key);
    return it == object.end() || it->is_null() ? nullptr : &*it;
  };
  const auto compare = [&](const std::string& key) {
    const Json* left = find(a, key);
    const Json* right = find(b, key);
    if (left == nullptr && right == nullptr) return;
    if (left != nullptr && right != nullptr) {
      if (*left == *right) return;
      if (left->is_object() && right->is_object())
        return CompareObjects(*left, *right, prefix + key + ".", changes);
    }
    changes.push_back({prefix + key, Dump(left), Dump(right)});
  };
  for (const auto& [key, value] : a.items()) compare(key);
  for (const auto& [key, value] : b.items()) {
    if (!a.contains(key)) compare(key);
  }
}

// hash64 of every tensor, in the order of the source: as recorded, or of the payload that is read.
Result<std::vector<uint64_t>> HashTensors(const ComparedModel& model, ThreadPool& pool,
                                          const RunControl& run) {
  const auto tensors = model.tensors->tensors();
  std::vector<uint64_t> hashes(tensors.size());
  if (model.file != nullptr) {
    for (size_t i = 0; i < tensors.size(); ++i)
      hashes[i] = model.file->PlaceOf(*model.file->Find(tensors[i].name)).hash;
    return hashes;
  }
  std::mutex mutex;
  std::optional<Error> error;
  const auto count = static_cast<int64_t>(tensors.size());
  for (int64_t begin = 0; begin < count; begin += kBatch) {
    CMF_CHECK(run.CheckCancelled());
    pool.Run(std::min(kBatch, count - begin), [&](int64_t task, int) {
      const auto i = static_cast<size_t>(begin + task);
      auto view = model.tensors->Read(tensors[i].name);
      if (view) {
        hashes[i] = cmf::Hash64(view->bytes);
        return;
      }
      const std::lock_guard lock(mutex);
      error = std::move(view).error();
    });
    if (error) return Fail(*error);
    run.Report("hashing tensors", std::min(begin + kBatch, count), count);
  }
  return hashes;
}

struct ErrorSums {
  double difference = 0, reference = 0, max_abs = 0;
};

Result<void> MeasureValues(const ComparedModel& a, const ComparedModel& b, TensorChange& change,
                           ThreadPool& pool) {
  if (FindEncoding(change.a.dtype) == nullptr && ElementBytes(change.a.dtype) == 0) return {};
  if (FindEncoding(change.b.dtype) == nullptr && ElementBytes(change.b.dtype) == 0) return {};
  CMF_TRY(const TensorView view_a, a.tensors->Read(change.a.name));
  CMF_TRY(const TensorView view_b, b.tensors->Read(change.b.name));
  CMF_TRY(const FloatRows rows_a, AsFloatRows(view_a));
  CMF_TRY(const FloatRows rows_b, AsFloatRows(view_b));
  const int64_t step = std::max<int64_t>(1, kBlockElements / std::max<int64_t>(1, rows_a.cols));
  const int64_t blocks = (rows_a.rows + step - 1) / step;
  std::vector<ErrorSums> sums(
      static_cast<size_t>(blocks));  // added up in order: one answer for any thread count
  pool.Run(blocks, [&](int64_t block, int) {
    const int64_t begin = block * step, end = std::min(rows_a.rows, begin + step);
    std::vector<float> x(static_cast<size_t>((end - begin) * rows_a.cols)), y(x.size());
    rows_a.Read(begin, end, x.data());
    rows_b.Read(begin, end, y.data());
    ErrorSums& sum = sums[static_cast<size_t>(block)];
    for (size_t i = 0; i < x.size(); ++i) {
      const double difference = static_cast<double>(y[i]) - static_cast<double>(x[i]);
      sum.difference += difference * difference;
      sum.reference += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      sum.max_abs = std::max(sum.max_abs, std::abs(difference));
    }
  });
  ErrorSums total;
  for (const ErrorSums& sum : sums) {
    total.difference += sum.difference;
    total.reference += sum.reference;
    total.max_abs = std::max(total.max_abs, sum.max_abs);
  }
  change.relative_error = total.difference == 0 ? 0 : std::sqrt(total.difference / total.reference);
  change.max_abs = total.max_abs;
  return {};
}

// What makes two payloads the same weights: dtype, shape and hash.
using PayloadKey = std::tuple<DType, Shape, uint64_t>;

Result<void> CompareTensors(const ComparedModel& a, const ComparedModel& b, const CompareOptions& options,
                            ThreadPool& pool, const RunControl& run, ModelDiff& diff) {
  CMF_TRY(const std::vector<uint64_t> hashes_a, HashTensors(a, pool, run));
  CMF_TRY(const std::vector<uint64_t> hashes_b, HashTensors(b, pool, run));
  const auto tensors_a = a.tensors->tensors(), tensors_b = b.tensors->tensors();
  std::unordered_map<std::string_view, size_t> at_b;
  for (size_t i = 0; i < tensors_b.size(); ++i) at_b.emplace(tensors_b[i].name, i);

  std::unordered_set<std::string_view> shared;
  std::vector<size_t> left_a;
  for (size_t i = 0; i < tensors_a.size(); ++i) {
    const TensorInfo& info = tensors_a[i];
    const auto found = at_b.find(info.name);
    if (found == at_b.end()) {
      left_a.push_back(i);
      continue;
    }
    shared.insert(info.name);
    const TensorInfo& other = tensors_b[found->second];
    if (info.dtype == other.dtype && info.shape == other.shape && hashes_a[i] == hashes_b[found->second]) {
      ++diff.same_tensors;
      continue;
    }
    diff.changed.push_back({info, other, hashes_a[i], hashes_b[found->second], std::nullopt, std::nullopt});
  }
  // What is left by name may still be there by payload.
  std::multimap<PayloadKey, size_t> payloads_b;
  std::vector<bool> is_taken(tensors_b.size());
  for (size_t i = 0; i < tensors_b.size(); ++i) {
    is_taken[i] = shared.contains(tensors_b[i].name);
    if (!is_taken[i]) payloads_b.emplace(PayloadKey(tensors_b[i].dtype, tensors_b[i].shape, hashes_b[i]), i);
  }
  for (const size_t i : left_a) {
    const auto found = payloads_b.find(PayloadKey(tensors_a[i].dtype, tensors_a[i].shape, hashes_a[i]));
    if (found == payloads_b.end()) {
      diff.only_a.push_back(tensors_a[i]);
      continue;
    }
    const size_t other = found->second;
    is_taken[other] = true;
    diff.renamed.push_back(
        {tensors_a[i], tensors_b[other], hashes_a[i], hashes_b[other], std::nullopt, std::nullopt});
    payloads_b.erase(found);
  }
  for (size_t i = 0; i < tensors_b.size(); ++i) {
    if (!is_taken[i]) diff.only_b.push_back(tensors_b[i]);
  }
  if (!options.values) return {};
  for (size_t i = 0; i < diff.changed.size(); ++i) {
    CMF_CHECK(run.CheckCancelled());
    run.Report("comparing values", static_cast<int64_t>(i), static_cast<int64_t>(diff.changed.size()));
    TensorChange& change = diff.changed[i];
    if (change.a.shape == change.b.shape) CMF_CHECK(MeasureValues(a, b, change, pool));
  }
  return {};
}

// Sorts names into same, changed and on one side only; `equal` compares two that share a name.
template <class Items, class NameOf, class Equal>
NameChanges CompareNames(const Items& a, const Items& b, NameOf&& name_of, Equal&& equal) {
  NameChanges changes;
  const auto find = [&](const Items& items, std::string_view name) {
    return std::find_if(items.begin(), items.end(), [&](const auto& item) { return name_of(item) == name; });
  };
  for (const auto& item : a) {
    const auto other = find(b, name_of(item));
    if (other == b.end()) {
      changes.only_a.emplace_back(name_of(item));
    } else if (equal(item, *other)) {
      ++changes.same;
    } else {
      changes.changed.emplace_back(name_of(item));
    }
  }
  for (const auto& item : b) {
    if (find(a, name_of(item)) == a.end()) changes.only_b.emplace_back(name_of(item));
  }
  return changes;
}

using Rows = std::vector<std::vector<uint8_t>>;

// Bits that differ. An area that is not there restricts nothing: it is compared as ones, within the other's rows.
int64_t DifferentBits(const Rows& a, const Rows& b, int64_t width) {
  if (a.empty() && b.empty()) return 0;
  const std::vector<uint8_t> ones = cmf::FullRow(width);
  const auto row = [&](const Rows& rows, size_t i) -> const std::vector<uint8_t>& {
    return rows.empty() ? ones : rows[i % rows.size()];  // a looped model's rows repeat
  };
  int64_t different = 0;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const std::vector<uint8_t>&left = row(a, i), &right = row(b, i);
    for (size_t byte = 0; byte < std::max(left.size(), right.size()); ++byte) {
      const unsigned l = byte < left.size() ? left[byte] : 0u, r = byte < right.size() ? right[byte] : 0u;
      different += std::popcount(l ^ r);
    }
  }
  return different;
}

MaskChange CompareMask(const cmf::TaskMask& a, const cmf::TaskMask& b, const cmf::MaskGeometry& geometry) {
  const auto gates = [](const cmf::TaskMask& mask) {
    return mask.bits.layer_gates.empty() ? Rows() : Rows{mask.bits.layer_gates};
  };
  MaskChange change;
  change.name = a.name;
  change.neurons = DifferentBits(a.bits.ffn, b.bits.ffn, geometry.ffn_width);
  change.heads = DifferentBits(a.bits.heads, b.bits.heads, geometry.heads);
  change.gates = DifferentBits(gates(a), gates(b), geometry.layers);
  change.experts = DifferentBits(a.bits.experts, b.bits.experts, geometry.experts);
  change.meta = std::tie(a.description, a.parent, a.sparsity, a.quality, a.priority, a.extra) !=
                std::tie(b.description, b.parent, b.sparsity, b.quality, b.priority, b.extra);
  return change;
}

void CompareExtras(const ComparedModel& a, const ComparedModel& b, ModelDiff& diff) {
  const std::vector<cmf::SkillRecord> no_skills;
  const auto& skills_a = a.file ? a.file->header().skills : no_skills;
  const auto& skills_b = b.file ? b.file->header().skills : no_skills;
  diff.skills = CompareNames(
      skills_a, skills_b, [](const cmf::SkillRecord& skill) -> const std::string& { return skill.id; },
      [](const cmf::SkillRecord& x, const cmf::SkillRecord& y) { return x == y; });

  const cmf::MaskCatalog no_masks;
  const cmf::MaskCatalog& masks_a = a.file ? a.file->masks() : no_masks;
  const cmf::MaskCatalog& masks_b = b.file ? b.file->masks() : no_masks;
  const cmf::MaskGeometry geometry = a.config ? cmf::MaskGeometry::Of(*a.config) : cmf::MaskGeometry();
  diff.masks = CompareNames(
      masks_a.masks, masks_b.masks, [](const cmf::TaskMask& mask) -> const std::string& { return mask.name; },
      [&](const cmf::TaskMask& x, const cmf::TaskMask& y) {
        const MaskChange change = CompareMask(x, y, geometry);
        const bool same = !change.meta && change.neurons + change.heads + change.gates + change.experts == 0;
        if (!same) diff.mask_changes.push_back(change);
        return same;
      });

  const auto note = [&](const char* key, const Json& left, const Json& right) {
    if (left != right)
      diff.other.push_back(
          {key, left.is_null() ? "" : DumpJson(left), right.is_null() ? "" : DumpJson(right)});
  };
  note("masks.default_task", masks_a.default_task, masks_b.default_task);
  const auto tokenizer = [](const ComparedModel& model) {
    return model.tokenizer_json.empty()
               ? Json(nullptr)
               : Json(fmt::format("{} bytes, hash64 {}", model.tokenizer_json.size(),
                                  cmf::Hash64Hex(cmf::Hash64(model.tokenizer_json))));
  };
  note("tokenizer", tokenizer(a), tokenizer(b));
  const ChatBundle no_chat;
  const ChatBundle &chat_a = a.chat ? *a.chat : no_chat, &chat_b = b.chat ? *b.chat : no_chat;
  note("chat.template", chat_a.chat_template, chat_b.chat_template);
  note("chat.eos_token_ids", chat_a.eos_token_ids, chat_b.eos_token_ids);
  const auto id = [](const std::optional<TokenId>& token) { return token ? Json(*token) : Json(nullptr); };
  note("chat.bos_token_id", id(chat_a.bos_token_id), id(chat_b.bos_token_id));
  note("chat.pad_token_id", id(chat_a.pad_token_id), id(chat_b.pad_token_id));
  const RecommendedSampling none;
  if ((a.sampling ? *a.sampling : none) != (b.sampling ? *b.sampling : none))
    note("sampling", "differs", Json(nullptr));
}

}  // namespace

bool ModelDiff::identical() const {
  return arch.empty() && changed.empty() && renamed.empty() && only_a.empty() && only_b.empty() &&
         skills.empty() && masks.empty() && other.empty();
}

std::vector<ValueChange> CompareArch(const ModelConfig& a, const ModelConfig& b) {
  std::vector<ValueChange> changes;
  CompareObjects(cmf::ArchToJson(a), cmf::ArchToJson(b), "", changes);
  return changes;
}

Result<ModelDiff> CompareModels(const ComparedModel& a, const ComparedModel& b, const CompareOptions& options,
                                ThreadPool& pool, const RunControl& run) {
  ModelDiff diff;
  const auto arch = [](const ComparedModel& model) {
    return model.config ? cmf::ArchToJson(*model.config) : Json::object();
  };
  CompareObjects(arch(a), arch(b), "", diff.arch);
  CMF_CHECK(CompareTensors(a, b, options, pool, run, diff));
  CompareExtras(a, b, diff);
  return diff;
}

}  // namespace cmforge
