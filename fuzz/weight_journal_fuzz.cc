// room: coreml
// A hostile journal of compressed weights: one that begins as ours do opens whatever follows, gives out what has its hash
// only, and takes and keeps what is added; any other file is refused and stays as it is.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "coreml/graphs/weight_journal.h"

namespace {

using namespace cmforge;  // NOLINT: a fuzz target

bool Holds(const coreml::WeightJournal& journal, const std::string& key,
           const coreml::EncodedWeight& wanted) {
  const auto found = journal.Find(key);
  return found && *found && (*found)->tables == wanted.tables && (*found)->codes == wanted.codes &&
         (*found)->count == wanted.count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto path =
      std::filesystem::temp_directory_path() / fmt::format("weight_journal_fuzz.{}", getpid());
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(data), static_cast<long>(size));
  const coreml::EncodedWeight added{std::vector<std::byte>(6), std::vector<std::byte>(3), 0.5, 2.0, 6};
  {
    auto journal = coreml::WeightJournal::Open(path, "fuzz", true);
    if (!journal) {
      constexpr std::string_view kBegin = "cmfwork1";
      const std::string_view begin(reinterpret_cast<const char*>(data), std::min(size, kBegin.size()));
      if (kBegin.starts_with(begin) || std::filesystem::file_size(path) != size) abort();
      return 0;
    }
    for (const char* key : {"lut4,8 a.weight", "int8 b.weight", ""}) {
      const auto found = journal->Find(key);
      if (!found) abort();
      if (*found && (*found)->tables.size() + (*found)->codes.size() > size) abort();
    }
    if (!journal->Add("added", added) || !Holds(*journal, "added", added)) abort();
  }
  auto journal = coreml::WeightJournal::Open(path, "fuzz", true);
  if (!journal || !Holds(*journal, "added", added)) abort();
  journal->Discard();
  return 0;
}
