// Replaces payloads of a .cmf file where they lie: same offsets, same length of the file, other encodings. Killed at any
// byte, the file is valid: some of its tensors are the new ones, the others the old ones. That costs room at the tail
// for as long as it takes, one batch of payloads:
//
//   1. new payloads, directory and header to the tail; fsync; the envelope points there; fsync
//   2. now the old payloads are dead: the new ones are copied into their slots, and directory and header that say so
//      into the space between envelope and data; fsync; the envelope points there; fsync
//
// and then the tail is dead, and the next batch may use it. The 128 bytes of the envelope are one write each, as in
// append.h. A process that has the file mapped sees weights change under it: this is not for a file that is in use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cmf/file.h"
#include "cmf/in_place_file.h"

namespace cmforge::cmf {

class SlotRewriter {
 public:
  /// `part` is the file as it was when `sink` was opened; both must outlive the result. `header`: what the file shall
  /// say from its first flush on; its quant_type is filled in.
  SlotRewriter(const Part& part, Header header, InPlaceSink& sink);

  /// Bytes that a payload may take without moving: up to whatever lies next. 0 for a tensor that shares bytes with
  /// something else, and for a name that is not in this file.
  [[nodiscard]] uint64_t SlotSize(std::string_view name) const;

  /// Takes the new payload of a tensor, which keeps its shape. Payloads are held until a batch is full or Flush.
  /// Fails: kUsage (it does not fit its slot; what CheckPayload finds), kIo.
  Result<void> Replace(std::string_view name, DType dtype, Bytes payload);

  /// Another header for the next flush.
  void set_header(Header header);

  /// Brings everything taken so far into the file. Does nothing when nothing changed.
  Result<void> Flush();

  /// hash64 of the directory as of the last flush.
  [[nodiscard]] uint64_t directory_hash() const { return directory_hash_; }
  /// Bytes of the file that are alive: what follows may be cut off.
  [[nodiscard]] uint64_t live_end() const { return live_end_; }

  /// Payload bytes after which Replace flushes.
  void set_batch_size(uint64_t bytes) { batch_size_ = bytes; }

 private:
  struct Pending {
    size_t entry;  // index into entries_
    DType dtype;
    std::vector<std::byte> payload;
  };
  struct Tables {
    std::vector<std::byte> directory;
    std::string header;
    uint32_t features = 0;
    [[nodiscard]] uint64_t size() const { return header.size() + directory.size(); }
  };
  Result<Tables> Pack(std::span<const DirectoryEntry> entries) const;
  Result<void> SwitchTo(const Tables& tables, uint64_t at, ByteRange data);

  const Part& part_;
  InPlaceSink& sink_;
  Header header_;
  std::vector<DirectoryEntry> entries_;                   // as of the last flush
  std::vector<uint64_t> slots_;                           // beside entries_
  std::unordered_map<std::string_view, size_t> by_name_;  // names of part_.directory
  std::vector<Pending> pending_;
  uint64_t pending_bytes_ = 0;
  uint64_t batch_size_ = uint64_t{64} << 20;
  uint64_t front_end_ = 0;  // where the space behind the envelope ends
  uint64_t file_end_ = 0;   // of everything alive, as it was
  uint64_t live_end_ = 0;
  uint64_t directory_hash_ = 0;
  bool header_changed_ = true;
};

}  // namespace cmforge::cmf
