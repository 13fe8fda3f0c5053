// The verifier: all bytes that have a hash are cut into pieces, and the pieces of one stretch of the file are
// hashed by all threads at once, while one of them feeds the stretch to SHA-256 when the file is signed: one
// pass over the file.
#include "cmf/verify.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>

#include "base/page_buffer.h"
#include "cmf/hash64.h"
#include "cmf/shards.h"
#include "cmf/signature.h"
#include "quant/encoding.h"

namespace cmforge::cmf {
namespace {

constexpr uint64_t kPiece = uint64_t{256} << 10;   // fits a core's L2 cache; a multiple of 8
constexpr uint64_t kStretch = uint64_t{16} << 20;  // between two looks at `cancelled`
constexpr size_t kMissingNamed = 5;                // missing shards that a message names

/// A range of a file and the hash it should have.
struct Job {
  std::string where;
  ByteRange range;
  uint64_t expected = 0;
  std::atomic<uint64_t> fold{0};
  std::string error;  // of reading
};

/// A section that may have a recorded hash; 0: written before sections had hashes.
struct HashedSection {
  std::string_view name;
  ByteRange range;
  uint64_t hash;
};

std::vector<HashedSection> HashedSections(const Part& part) {
  const Envelope& envelope = part.envelope;
  const SectionHashes& hashes = part.header.section_hashes;
  std::vector<HashedSection> sections = {{"header", envelope.header, envelope.header_hash},
                                         {"directory", envelope.directory, envelope.directory_hash}};
  for (const auto& [name, range, hash] :
       {std::tuple{"masks", envelope.masks, hashes.masks}, std::tuple{"vocab", envelope.vocab, hashes.vocab},
        std::tuple{"index", envelope.index, hashes.index}}) {
    if (range.size > 0) sections.push_back({name, range, hash.value_or(0)});
  }
  return sections;
}

// What is said of a place need not name it again.
std::string WithoutPrefix(const std::string& message, std::string_view prefix) {
  return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
}

std::string WrongHash(uint64_t actual, uint64_t recorded) {
  return fmt::format("its hash is {}, {} is recorded: these bytes were changed: copy the file again",
                     Hash64Hex(actual), Hash64Hex(recorded));
}

struct Piece {
  Job* job;
  ByteRange range;  // in the file
};

class PartVerifier {
 public:
  PartVerifier(const File& file, const Part& part, bool wants_sha256, ThreadPool& pool, const RunControl& run)
      : file_(file), part_(part), wants_sha256_(wants_sha256), pool_(pool), run_(run) {}

  /// Adds what it finds to the report. `base` and `total` are for the progress of the whole set.
  Result<void> Run(VerifyReport& report, uint64_t base, uint64_t total) {
    PlanJobs();
    CMF_CHECK(HashAll(base, total));
    for (const Problem& problem : structure_) report.problems.push_back(problem);
    for (const Problem& note : notes_) report.notes.push_back(note);
    for (const Job& job : jobs_) {
      report.bytes += job.range.size;
      const uint64_t actual = Hash64Finish(job.fold, job.range.size);
      if (!job.error.empty()) {
        report.problems.push_back({job.where, job.error});
      } else if (actual != job.expected) {
        report.problems.push_back({job.where, WrongHash(actual, job.expected)});
      }
    }
    report.sections += sections_;
    report.tensors += static_cast<int64_t>(part_.directory.size());
    CheckPayloads(report);
    return {};
  }

  Sha256Digest Digest() { return sha256_.Finish(); }

 private:
  void PlanJobs() {
    for (const HashedSection& section : HashedSections(part_)) {
      ++sections_;
      if (section.hash != 0) AddJob(std::string(section.name), section.range, section.hash);
    }
    for (const std::string& key : part_.header.section_hashes.malformed) {
      structure_.push_back({key, "its recorded hash is not 16 hex digits"});
    }
    for (const std::string_view name : SectionsWithoutHash(part_))
      notes_.push_back(
          {std::string(name), fmt::format("no {} hash recorded: its bytes cannot be checked", name)});
    CheckEnvelope();
    for (const DirectoryEntry& entry : part_.directory) {
      AddJob(fmt::format("tensor '{}'", entry.info.name),
             {part_.envelope.data.offset + entry.offset, entry.info.nbytes}, entry.hash);
    }
  }

  void AddJob(std::string where, ByteRange range, uint64_t hash) {
    Job& job = jobs_.emplace_back();
    job.where = std::move(where);
    job.range = range;
    job.expected = hash;
  }

  // No hash covers the envelope, but most of it says what can be seen elsewhere too.
  void CheckEnvelope() {
    EnvelopeBytes raw;
    std::memcpy(&raw, part_.bytes.data(), sizeof(raw));
    for (const auto& [name, field] :
         {std::pair{"masks", raw.masks}, std::pair{"vocab", raw.vocab}, std::pair{"index", raw.index}}) {
      if (field.length == 0 && field.offset != 0)
        structure_.push_back({name, "has a place in the envelope, but no length"});
    }
    const uint32_t features = part_.envelope.required_features;
    const auto expect = [&](uint32_t bit, bool present, std::string_view when) {
      if (((features & bit) != 0) == present) return;
      structure_.push_back({"envelope", fmt::format("feature bit {} is {}, although {}", FeatureNames(bit),
                                                    present ? "missing" : "set", when)});
    };
    const bool has_masks = part_.envelope.masks.size > 0;
    expect(kTensorDir, true, "every file has it");
    expect(kBinaryMasks, has_masks, has_masks ? "there is a masks section" : "there is no masks section");
    const bool is_skill = part_.header.is_skill_file();
    expect(kSkillFile, is_skill, is_skill ? "a skill is bound to a base" : "no skill is bound to a base");
    if (!has_masks || part_.header.config.num_loops < 2) expect(kLoopMasks, false, "no mask is per visit");
  }

  std::vector<Piece> CutIntoPieces() {
    std::vector<Piece> pieces;
    for (Job& job : jobs_) {
      for (uint64_t at = 0; at < job.range.size; at += kPiece) {
        pieces.push_back({&job, {job.range.offset + at, std::min(kPiece, job.range.size - at)}});
      }
    }
    std::stable_sort(pieces.begin(), pieces.end(),
                     [](const Piece& a, const Piece& b) { return a.range.offset < b.range.offset; });
    return pieces;
  }

  Result<void> HashAll(uint64_t base, uint64_t total) {
    const std::vector<Piece> pieces = CutIntoPieces();
    for (int worker = 0; worker < pool_.threads(); ++worker) buffers_.emplace_back(kPiece);
    const uint64_t size = part_.bytes.size();
    size_t next = 0;
    for (uint64_t begin = 0; begin < size; begin += kStretch) {
      CMF_CHECK(run_.CheckCancelled());
      const uint64_t end = std::min(begin + kStretch, size);
      part_.mapping.Prefetch({end, std::min(kStretch, size - end)});
      const size_t first = next;
      while (next < pieces.size() && pieces[next].range.offset < end) ++next;
      const int64_t sha_tasks = wants_sha256_ ? 1 : 0;  // the longest task comes first
      pool_.Run(static_cast<int64_t>(next - first) + sha_tasks, [&](int64_t task, int worker) {
        if (task < sha_tasks) {
          FeedSha256({begin, end - begin}, worker);
        } else {
          HashPiece(pieces[first + static_cast<size_t>(task - sha_tasks)], worker);
        }
      });
      run_.Report("verifying", static_cast<int64_t>(base + end), static_cast<int64_t>(total),
                  ProgressUnit::kBytes);
    }
    return {};
  }

  // Reads at most a piece; from a file by copying, which costs less than faulting its pages in.
  Result<Bytes> Fetch(ByteRange range, int worker) {
    if (part_.mapping.bytes().empty()) return range.Of(part_.bytes);
    const auto out = buffers_[static_cast<size_t>(worker)].first(range.size);
    CMF_CHECK(part_.mapping.ReadAt(range.offset, out));
    return Bytes(out);
  }

  void HashPiece(const Piece& piece, int worker) {
    const auto bytes = Fetch(piece.range, worker);
    if (!bytes) {
      const std::lock_guard lock(error_mutex_);
      piece.job->error = bytes.error().message;
      return;
    }
    const uint64_t fold = Hash64Fold(*bytes, (piece.range.offset - piece.job->range.offset) / 8);
    piece.job->fold.fetch_xor(fold, std::memory_order_relaxed);
  }

  // Unreadable bytes leave the digest wrong, and their tensor says why.
  void FeedSha256(ByteRange stretch, int worker) {
    for (uint64_t at = stretch.offset; at < stretch.end(); at += kPiece) {
      if (const auto bytes = Fetch({at, std::min(kPiece, stretch.end() - at)}, worker))
        sha256_.Update(*bytes);
    }
  }

  // Payloads whose size does not say all: widths, offsets and indices inside them must hold too.
  void CheckPayloads(VerifyReport& report) {
    for (const DirectoryEntry& entry : part_.directory) {
      const Encoding* encoding = FindEncoding(entry.info.dtype);
      if (encoding == nullptr || encoding->validate == nullptr) continue;
      if (const auto view = file_.Read(entry.info.name); !view) {
        std::string where = fmt::format("tensor '{}'", entry.info.name);
        std::string what = WithoutPrefix(view.error().message, fmt::format("{}: {}: ", part_.path, where));
        report.problems.push_back({std::move(where), std::move(what)});
      }
    }
  }

  const File& file_;
  const Part& part_;
  const bool wants_sha256_;
  ThreadPool& pool_;
  const RunControl& run_;
  std::deque<Job> jobs_;  // pieces point into it
  std::vector<Problem> structure_, notes_;
  int64_t sections_ = 0;
  std::vector<PageBuffer> buffers_;  // one a worker
  Sha256 sha256_;
  std::mutex error_mutex_;
};

void CheckIndex(const File& file, VerifyReport& report) {
  if (file.parts()[0].envelope.index.size == 0) return;
  for (const std::string& difference :
       CompareIndexWithMasks(file.sparse_index(), file.masks(), file.mask_geometry())) {
    report.problems.push_back({"index", difference});
  }
}

uint64_t TotalBytes(const File& file) {
  uint64_t total = 0;
  for (const Part& part : file.parts()) total += part.bytes.size();
  return total;
}

// The signature of one file: read before the pass, judged with its digest after it.
struct SignatureCheck {
  std::optional<Signature> signature;
  bool is_invalid = false;

  void Load(const std::string& path, VerifyReport& report) {
    auto read = ReadSignature(path);
    if (read) {
      signature = std::move(*read);
    } else {
      is_invalid = true;
      report.problems.push_back({"signature", read.error().message});
    }
  }
  Result<void> Judge(const Sha256Digest& digest, const std::string& required_key, VerifyReport& report) {
    if (!signature) return {};
    if (auto status = CheckSignature(*signature, digest, required_key); !status) {
      if (status.error().kind == ErrorKind::kUsage) return Fail(std::move(status).error());
      is_invalid = true;
      report.problems.push_back({"signature", status.error().message});
    }
    return {};
  }
};

// What was said from `first` on gets the file's name in front.
void NameFile(std::vector<Problem>& said, size_t first, const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  for (size_t i = first; i < said.size(); ++i) said[i].where = fmt::format("{}: {}", name, said[i].where);
}

// The files to verify for a path: of a set, all shards that are there. Shards that are missing become a
// problem, unless the named one is all there is: a shard can be verified alone (spec 10).
std::vector<std::filesystem::path> FindFiles(const std::filesystem::path& path, const File& file,
                                             VerifyReport& report) {
  const auto& shard = file.header().shard;
  const auto name = ParseShardName(path.filename().string());
  if (!shard || shard->count < 2) return {path};
  if (name && (name->no != shard->no || name->count != shard->count)) {
    report.problems.push_back(
        {"shards", fmt::format("the header says shard {} of {}, the name says {} of {}: rename it", shard->no,
                               shard->count, name->no, name->count)});
  }
  if (!report.problems.empty() || !name) {
    report.lone_shard = {shard->no, shard->count};
    return {path};
  }
  std::vector<std::filesystem::path> files;
  std::vector<std::string> missing;
  for (int64_t no = 1; no <= shard->count; ++no) {
    const std::filesystem::path sibling = SiblingPath(path, no);
    std::error_code ignored;
    if (no == shard->no || std::filesystem::exists(sibling, ignored)) {
      files.push_back(sibling);
    } else {
      missing.push_back(sibling.filename().string());
    }
  }
  if (files.size() == 1) report.lone_shard = {shard->no, shard->count};
  if (files.size() > 1 && !missing.empty()) {
    const size_t named = std::min(missing.size(), kMissingNamed);
    report.problems.push_back(
        {"shards",
         fmt::format("{} of {} {} missing: {}{}: fetch the whole set", missing.size(), shard->count,
                     missing.size() == 1 ? "is" : "are",
                     fmt::join(missing.begin(), missing.begin() + static_cast<std::ptrdiff_t>(named), ", "),
                     named < missing.size() ? ", ..." : "")});
  }
  return files;
}

}  // namespace

std::vector<std::string_view> SectionsWithoutHash(const Part& part) {
  std::vector<std::string_view> names;
  for (const HashedSection& section : HashedSections(part)) {
    if (section.hash == 0) names.push_back(section.name);
  }
  return names;
}

std::string_view SignatureStateName(SignatureState state) {
  switch (state) {
    case SignatureState::kAbsent:
      return "absent";
    case SignatureState::kValid:
      return "valid";
    case SignatureState::kInvalid:
      return "invalid";
  }
  return "invalid";
}

Result<void> CheckSections(const Part& part) {
  for (const HashedSection& section : HashedSections(part)) {
    const uint64_t actual = Hash64(section.range.Of(part.bytes));
    if (section.hash != 0 && actual != section.hash) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("{}: {}: {}", part.path, section.name, WrongHash(actual, section.hash)));
    }
  }
  return {};
}

Result<VerifyReport> Verify(const File& file, ThreadPool& pool, const RunControl& run) {
  VerifyReport report;
  uint64_t base = 0;
  for (const Part& part : file.parts()) {
    report.files.push_back(part.path);
    const size_t first = report.problems.size(), first_note = report.notes.size();
    CMF_CHECK(
        PartVerifier(file, part, /*wants_sha256=*/false, pool, run).Run(report, base, TotalBytes(file)));
    if (file.parts().size() > 1) {
      NameFile(report.problems, first, part.path);
      NameFile(report.notes, first_note, part.path);
    }
    base += part.bytes.size();
  }
  CheckIndex(file, report);
  return report;
}

Result<VerifyReport> Verify(const std::filesystem::path& path, const VerifyOptions& options, ThreadPool& pool,
                            const RunControl& run) {
  VerifyReport report;
  if (!options.public_key.empty()) CMF_CHECK(CheckPublicKey(options.public_key));
  CMF_TRY(File named, File::Open(path, MappedFile::Mode::kMap, File::Shards::kThisFile));
  const std::vector<std::filesystem::path> paths = FindFiles(path, named, report);
  std::vector<File> files;
  uint64_t total = 0;
  for (const std::filesystem::path& part_path : paths) {
    auto file = File::Open(part_path, MappedFile::Mode::kMap, File::Shards::kThisFile);
    if (file) {
      total += TotalBytes(*file);
      files.push_back(std::move(*file));
    } else {
      report.problems.push_back({part_path.filename().string(), file.error().message});
    }
  }

  uint64_t base = 0;
  size_t signed_files = 0;
  bool is_invalid = false;
  std::vector<std::string> unsigned_files;
  for (const File& file : files) {
    const Part& part = file.parts()[0];
    const size_t first = report.problems.size(), first_note = report.notes.size();
    report.files.push_back(part.path);
    SignatureCheck check;
    if (options.check_signature) check.Load(part.path, report);
    PartVerifier verifier(file, part, check.signature.has_value(), pool, run);
    CMF_CHECK(verifier.Run(report, base, total));
    CheckIndex(file, report);
    if (check.signature) {
      CMF_CHECK(check.Judge(verifier.Digest(), options.public_key, report));
      ++signed_files;
    } else if (!check.is_invalid) {
      unsigned_files.push_back(std::filesystem::path(part.path).filename().string());
    }
    is_invalid = is_invalid || check.is_invalid;
    if (paths.size() > 1) {
      NameFile(report.problems, first, part.path);
      NameFile(report.notes, first_note, part.path);
    }
    base += part.bytes.size();
  }
  // A set that is signed in part, or a file whose signer is demanded, is not authentic where the signature is
  // missing.
  if (!unsigned_files.empty() && (signed_files > 0 || !options.public_key.empty())) {
    report.problems.push_back(
        {"signature", fmt::format("missing for {}: sign it", fmt::join(unsigned_files, ", "))});
  }
  report.signature = is_invalid          ? SignatureState::kInvalid
                     : signed_files == 0 ? SignatureState::kAbsent
                                         : SignatureState::kValid;
  // Whether the shards belong together shows only when they are opened together.
  const bool is_told =
      std::ranges::any_of(report.problems, [](const Problem& p) { return p.where == "shards"; });
  if (files.size() > 1 && files.size() == paths.size() && !is_told) {
    if (const auto set = File::Open(path); !set) report.problems.push_back({"shards", set.error().message});
  }
  return report;
}

}  // namespace cmforge::cmf
