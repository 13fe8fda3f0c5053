// Signing and checking signatures.
#include "cmf/signature.h"

#include <sys/stat.h>

#include "base/json.h"
#include "cmf/signing_key.h"
#include "cmf/verify.h"
#include "files.h"
#include "tiny_model.h"

namespace cmforge::cmf {
namespace {

class Signing : public InFolder {
 protected:
  void SetUp() override {
    InFolder::SetUp();
    ASSERT_TRUE(WriteCmf(path_ = folder_ / "m.cmf", TinyContents(tensors_)));
    key_ = folder_ / "key";
  }
  VerifyReport Check(const std::string& public_key = {}) {
    VerifyOptions options;
    options.public_key = public_key;
    auto report = Verify(path_, options, pool_);
    EXPECT_TRUE(report) << report.error().message;
    return report ? *report : VerifyReport{};
  }
  void EditSignature(const char* key, const std::string& value) {
    std::ifstream stream(SignaturePath(path_));
    Json json = Json::parse(stream);
    json[key] = value;
    WriteAll(SignaturePath(path_), AsBytes(json.dump()));
  }
  MemorySource tensors_;
  fs::path path_, key_;
  ThreadPool pool_{2};
};

TEST(Sha256, HasTheKnownValues) {
  Sha256 sha;
  sha.Update(AsBytes("a"));
  sha.Update(AsBytes("bc"));
  EXPECT_EQ(HexOf(sha.Finish()), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Ed25519, KeysAndSignaturesAreThoseOfTheStandard) {
  // RFC 8032, 7.1, test 1: the public key of this seed.
  const fs::path folder = fs::path(testing::TempDir()) / "cmf_ed25519";
  fs::create_directories(folder);
  WriteAll(folder / "key", AsBytes(" 9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60\n"));
  WriteAll(folder / "f", AsBytes("x"));
  const auto signature = SignFile(folder / "f", folder / "key");
  ASSERT_TRUE(signature) << signature.error().message;
  EXPECT_EQ(signature->public_key, "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
  EXPECT_EQ(SignFile(folder / "f", folder / "key")->sig, signature->sig) << "deterministic";
  fs::remove_all(folder);
}

TEST_F(Signing, SignsWithAKeyThatOnlyItsOwnerReads) {
  const auto signature = SignFile(path_, key_);
  ASSERT_TRUE(signature) << signature.error().message;
  struct stat info = {};
  ASSERT_EQ(::stat(key_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const VerifyReport report = Check(signature->public_key);
  EXPECT_TRUE(report.ok()) << report.problems[0].what;
  EXPECT_EQ(report.signature, SignatureState::kValid);
  EXPECT_EQ(SignFile(path_, key_)->public_key, signature->public_key) << "the key is used again";
}

TEST_F(Signing, WarnsOfAKeyThatOthersCanRead) {
  ASSERT_TRUE(SignFile(path_, key_));
  ::chmod(key_.c_str(), 0644);
  std::string warning;
  RunControl run;
  run.log = [&](LogLevel, std::string_view text) { warning = text; };
  ASSERT_TRUE(SignFile(path_, key_, run));
  EXPECT_NE(warning.find("chmod 600"), std::string::npos);
}

TEST_F(Signing, EveryForgeryIsFound) {
  const auto signature = SignFile(path_, key_);
  ASSERT_TRUE(signature);
  const auto expect_invalid = [&](std::string_view text, const std::string& required = {}) {
    const VerifyReport report = Check(required);
    EXPECT_EQ(report.signature, SignatureState::kInvalid);
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.problems.back().where, "signature");
    EXPECT_NE(report.problems.back().what.find(text), std::string::npos) << report.problems.back().what;
  };
  expect_invalid("not by", std::string(64, '1'));  // another signer
  EditSignature("sig", std::string(128, '0'));
  expect_invalid("not made by the key");
  ASSERT_TRUE(SignFile(path_, key_));
  EditSignature("pubkey", SignFile(folder_ / "key", folder_ / "key2")->public_key);
  expect_invalid("not made by the key");
  ASSERT_TRUE(SignFile(path_, key_));
  EditSignature("alg", "none");
  expect_invalid("algorithm 'none'");
  ASSERT_TRUE(SignFile(path_, key_));
  EditSignature("sha256", "abc");
  expect_invalid("key 'sha256'");
  WriteAll(SignaturePath(path_), AsBytes("{"));
  expect_invalid("JSON");
  // A changed file: padding that no hash covers is still signed.
  ASSERT_TRUE(SignFile(path_, key_));
  std::vector<std::byte> file = ReadAll(path_);
  const auto opened = File::OpenBytes(file, "m");
  file[opened->parts()[0].envelope.data.offset - 1] ^= std::byte{1};
  WriteAll(path_, file);
  expect_invalid("changed after signing");
}

TEST_F(Signing, UpperCaseHexIsTheSameSignature) {
  const auto signature = SignFile(path_, key_);
  std::string upper = signature->sha256;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  EditSignature("sha256", upper);
  EXPECT_TRUE(Check().ok());
}

TEST_F(Signing, AbsenceIsAnErrorOnlyWhenASignerIsDemanded) {
  EXPECT_TRUE(Check().ok());
  const VerifyReport report = Check(std::string(64, '1'));
  EXPECT_FALSE(report.ok());
  EXPECT_EQ(report.signature, SignatureState::kAbsent);
}

TEST_F(Signing, LooksBesideTheLinkThatWasNamed) {
  fs::create_symlink("m.cmf", folder_ / "link.cmf");
  ASSERT_TRUE(SignFile(folder_ / "link.cmf", key_));
  EXPECT_TRUE(fs::exists(folder_ / "link.cmf.sig"));
  EXPECT_FALSE(fs::exists(folder_ / "m.cmf.sig"));
  path_ = folder_ / "link.cmf";
  EXPECT_EQ(Check().signature, SignatureState::kValid);
}

TEST_F(Signing, AFileThatIsNoKeyIsRefused) {
  WriteAll(key_, AsBytes("not a key"));
  EXPECT_EQ(SignFile(path_, key_).error().kind, ErrorKind::kCorrupt);
  EXPECT_FALSE(fs::exists(SignaturePath(path_)));
  EXPECT_EQ(SignFile(folder_ / "none", folder_ / "other").error().kind, ErrorKind::kNotFound);
  EXPECT_FALSE(fs::exists(folder_ / "other")) << "no key is made for a file that is not there";
  fs::create_symlink(folder_ / "elsewhere", folder_ / "dangling");
  EXPECT_EQ(SignFile(path_, folder_ / "dangling").error().kind, ErrorKind::kIo);
  EXPECT_FALSE(fs::exists(folder_ / "elsewhere")) << "a private key is never made through a link";
}

TEST_F(Signing, ASetSignedInPartIsNotAuthentic) {
  MemorySource source;
  const auto shards = WriteShards(folder_ / "set", TinyContents(source), 4e-7);
  ASSERT_TRUE(shards);
  path_ = shards->front();
  ASSERT_TRUE(SignFile(path_, key_));
  EXPECT_FALSE(Check().ok());
  for (const fs::path& path : *shards) ASSERT_TRUE(SignFile(path, key_));
  const VerifyReport report = Check();
  EXPECT_TRUE(report.ok()) << report.problems[0].what;
  EXPECT_EQ(report.signature, SignatureState::kValid);
}

}  // namespace
}  // namespace cmforge::cmf
