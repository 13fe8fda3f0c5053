// Mapped and atomically written files.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <fstream>

#include "base/atomic_file.h"
#include "base/cpu_limit.h"
#include "base/mapped_file.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  size_t Entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

TEST_F(Files, CanTakeBackTheirTail) {
  auto file = AtomicFile::Create(folder_ / "out");
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->Write(AsBytes("abcdef")));
  ASSERT_TRUE(file->CutTo(2));
  EXPECT_EQ(file->size(), 2u);
  ASSERT_TRUE(file->PadTo(4));  // zeros, not what was there before
  ASSERT_TRUE(file->Commit());
  const auto text = ReadTextFile(folder_ / "out");
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, std::string("ab\0\0", 4));
}

TEST_F(Files, ThatAreNoFilesAreRefusedWithoutWaiting) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const fs::path& path : {pipe, folder_, fs::path("/dev/null")}) {
    for (const auto mode : {MappedFile::Mode::kMap, MappedFile::Mode::kRead}) {
      const auto file = MappedFile::Open(path, mode);
      ASSERT_FALSE(file) << path;
      EXPECT_EQ(file.error().kind, ErrorKind::kUsage);
      EXPECT_EQ(file.error().message, path.string() + ": not a regular file: name a file");
    }
  }
}

TEST_F(Files, AppearOnlyWhenCommitted) {
  const fs::path target = folder_ / "out";
  {
    auto file = AtomicFile::Create(target);
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->Write(AsBytes("half")));
    EXPECT_FALSE(fs::exists(target));
  }
  EXPECT_EQ(Entries(), 0u);
  auto file = AtomicFile::Create(target);
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->Write(AsBytes("abc")));
  ASSERT_TRUE(file->PadTo(8));
  ASSERT_TRUE(file->Write(AsBytes("z")));
  ASSERT_TRUE(file->WriteAt(1, AsBytes("X")));
  ASSERT_TRUE(file->Commit());
  EXPECT_EQ(ReadTextFile(target).value(), std::string("aXc\0\0\0\0\0z", 9));
  EXPECT_EQ(Entries(), 1u);
}

TEST_F(Files, KeepTheOldFileWhenWritingFails) {
  const fs::path target = folder_ / "out";
  ASSERT_TRUE(WriteFileAtomically(target, AsBytes("old")));
  {
    auto file = AtomicFile::Create(target);
    ASSERT_TRUE(file->Write(AsBytes("new")));
  }
  EXPECT_EQ(ReadTextFile(target).value(), "old");
}

TEST_F(Files, WriteThroughALink) {
  ASSERT_TRUE(WriteFileAtomically(folder_ / "real", AsBytes("old")));
  fs::create_symlink("real", folder_ / "link");
  ASSERT_TRUE(WriteFileAtomically(folder_ / "link", AsBytes("new")));
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(ReadTextFile(folder_ / "real").value(), "new");
}

TEST_F(Files, ErrorsSayWhatIsWrong) {
  EXPECT_EQ(MappedFile::Open(folder_ / "none").error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(MappedFile::Open(folder_).error().kind, ErrorKind::kUsage);
  fs::create_symlink("gone", folder_ / "dangling");
  EXPECT_NE(MappedFile::Open(folder_ / "dangling").error().message.find("points to 'gone'"),
            std::string::npos);
  EXPECT_EQ(AtomicFile::Create(folder_ / "no" / "file").error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(AtomicFile::Create(folder_).error().kind, ErrorKind::kUsage);
}

TEST_F(Files, ReadAndMapGiveTheSameBytes) {
  ASSERT_TRUE(WriteFileAtomically(folder_ / "f", AsBytes("hello")));
  ASSERT_TRUE(WriteFileAtomically(folder_ / "empty", {}));
  for (const auto mode : {MappedFile::Mode::kMap, MappedFile::Mode::kRead}) {
    EXPECT_EQ(AsText(MappedFile::Open(folder_ / "f", mode)->bytes()), "hello");
    EXPECT_TRUE(MappedFile::Open(folder_ / "empty", mode)->bytes().empty());
  }
}

TEST_F(Files, ReadAtCopiesAndSaysWhatIsMissing) {
  ASSERT_TRUE(WriteFileAtomically(folder_ / "f", AsBytes("hello world")));
  for (const auto mode : {MappedFile::Mode::kMap, MappedFile::Mode::kRead}) {
    const auto file = MappedFile::Open(folder_ / "f", mode);
    std::array<std::byte, 5> out;
    ASSERT_TRUE(file->ReadAt(6, out));
    EXPECT_EQ(AsText(out), "world");
    EXPECT_EQ(file->ReadAt(7, out).error().kind, ErrorKind::kCorrupt);
  }
  const auto file = MappedFile::Open(folder_ / "f");
  fs::resize_file(folder_ / "f", 3);
  std::array<std::byte, 5> out;
  EXPECT_NE(file->ReadAt(0, out).error().message.find("became shorter"), std::string::npos);
}

TEST_F(Files, CpuQuotaBindsTheThreadCount) {
  EXPECT_GE(UsableCpus(), 1);
  std::ofstream(folder_ / "cpu.max") << "100000 100000\n";
  EXPECT_EQ(UsableCpus(folder_), 1);
  std::ofstream(folder_ / "cpu.max") << "max 100000\n";
  EXPECT_EQ(UsableCpus(folder_), UsableCpus(folder_ / "nothing"));
}

}  // namespace
}  // namespace cmforge
