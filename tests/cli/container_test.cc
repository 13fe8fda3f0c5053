// sign, shard, unshard, compact and diff through the program.
#include <sys/stat.h>

#include "cli/program.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;

class Container : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    ASSERT_EQ(Run({"convert", "-q", "--model", kCheckpoint, "--output", Path("m.cmf")}).status, 0);
  }
  static std::string Cmf(const std::string& name) { return std::string(CMFORGE_TEST_DATA) + "/cmf/" + name; }
  void Flip(const std::string& name, size_t offset) {
    std::string bytes = Slurp(Path(name));
    bytes.at(offset) = static_cast<char>(bytes.at(offset) ^ 1);
    std::ofstream(Path(name), std::ios::binary) << bytes;
  }
  size_t TensorOffset(const std::string& name) {
    const Json info = Run({"info", Path(name), "--json"}).json();
    for (const Json& tensor : info["tensors"]) {
      if (tensor["name"] == "model.norm.weight") return tensor["offset"].get<size_t>();
    }
    ADD_FAILURE() << "no norm";
    return 0;
  }
  std::string Logits(const std::string& path) {
    const Ran ran = Run({"logits", path, "--tokens", "5,6,7,8", "--all"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.out;
  }
  const std::string kCheckpoint = std::string(CMFORGE_TEST_DATA) + "/checkpoint/odd-ffn-width";
};

TEST_F(Container, VerifyAsksWhetherTheBytesMakeAModel) {
  const std::string good = Slurp(Path("m.cmf"));
  constexpr size_t kHashes = 112;  // of header and directory, the last of the envelope
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string bytes = good;
    if (const size_t at = bytes.find(from); at != bytes.npos) {
      bytes.replace(at, from.size(), to);
    } else {
      ADD_FAILURE() << from;
    }
    bytes.replace(kHashes, 16, std::string(16, '\0'));
    std::ofstream(Path("x.cmf"), std::ios::binary) << bytes;
  };
  const Json arch = Run({"info", Path("m.cmf"), "--json"}).json()["header"]["arch"];
  const auto field = [&](const std::string& name) { return "\"" + name + "\":" + arch[name].dump(); };
  const auto with = [&](const std::string& name, char digit) {  // of the same length
    std::string text = field(name);
    const size_t value = text.find(':') + 1;
    return text.replace(value, text.npos, std::string(text.size() - value, ' ')).replace(value, 1, 1, digit);
  };
  // The same bytes without hashes are right, and their lack is said.
  changed("CMF", "CMF");
  const Ran unhashed = Run({"verify", Path("x.cmf")});
  EXPECT_EQ(unhashed.status, 0) << unhashed.out;
  EXPECT_NE(unhashed.out.find("no header hash recorded"), std::string::npos) << unhashed.out;
  EXPECT_NE(unhashed.out.find("no directory hash recorded"), std::string::npos) << unhashed.out;
  EXPECT_EQ(Run({"verify", Path("x.cmf"), "--json"}).json()["notes"].size(), 2u);
  EXPECT_EQ(Run({"info", Path("x.cmf")}).out.find("intact"), std::string::npos);
  EXPECT_NE(Run({"info", Path("m.cmf")}).out.find("intact"), std::string::npos);
  EXPECT_EQ(Run({"verify", Path("m.cmf")}).out.find("note"), std::string::npos);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"model.norm.weight", "model.nrom.weight"},
           {field("hidden_size"), with("hidden_size", '0')},
           {field("hidden_size"), with("hidden_size", '7')},
           {field("num_attention_heads"), with("num_attention_heads", '0')}}) {
    changed(from, to);
    const Ran verify = Run({"verify", Path("x.cmf")});
    EXPECT_EQ(verify.status, 1) << to << verify.out << verify.err;
    EXPECT_NE(verify.out.find(Path("x.cmf") + ": model: "), std::string::npos) << verify.out;
    EXPECT_NE(verify.out.find("NOT RIGHT: 1 problem in "), std::string::npos) << verify.out;
    EXPECT_EQ(Run({"logits", Path("x.cmf"), "--tokens", "1"}).status, 4);
    EXPECT_EQ(Run({"info", Path("x.cmf")}).status, 0);
  }
  // What no engine runs is nevertheless whole.
  changed("\"norm_style\"", "\"form_style\"");
  const Ran unknown = Run({"verify", Path("x.cmf")});
  EXPECT_EQ(unknown.status, 0) << unknown.out;
  EXPECT_NE(unknown.out.find("note: model: config: no norm_style"), std::string::npos) << unknown.out;
  // A file that never held more than a part; an image pipeline; a skill; one shard.
  for (const char* name :
       {"good-tiny.cmf", "lumina-q4t.cmf", "rs-skillfile.cmf", "py-tiny-sharded-00002-of-00004.cmf"}) {
    EXPECT_EQ(Run({"verify", Cmf(name)}).status, 0) << name;
  }
  fs::copy(Cmf("py-tiny-sharded-00002-of-00004.cmf"), Path("py-tiny-sharded-00002-of-00004.cmf"));
  EXPECT_EQ(Run({"verify", Path("py-tiny-sharded-00002-of-00004.cmf")}).status, 0);
}

TEST_F(Container, SignedFilesVerifyUntilAnythingChanges) {
  const Ran sign = Run({"sign", Path("m.cmf"), "--key", Path("key"), "--json"});
  ASSERT_EQ(sign.status, 0) << sign.err;
  EXPECT_TRUE(sign.json()["key_created"].get<bool>());
  struct stat info = {};
  ASSERT_EQ(::stat(Path("key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const auto key = sign.json()["public_key"].get<std::string>();
  const auto verify = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"verify", Path("m.cmf"), "--json"});
    return Run(more);
  };
  EXPECT_EQ(verify({}).json()["signature"], "valid");
  EXPECT_EQ(verify({"--public-key", key}).status, 0);
  EXPECT_EQ(verify({"--public-key", std::string(64, 'a')}).status, 1);
  EXPECT_EQ(verify({"--public-key", "abc"}).status, 2);
  EXPECT_EQ(verify({"--public-key", ""}).status, 2);
  Flip("m.cmf", TensorOffset("m.cmf") - 1);  // padding: no hash covers it, the signature does
  EXPECT_EQ(verify({}).status, 1);
  EXPECT_EQ(verify({}).json()["signature"], "invalid");
  EXPECT_EQ(verify({}).json()["problems"][0]["where"], "signature");
  EXPECT_EQ(Run({"sign", Path("m.cmf"), "--key", Path("key"), "--json"}).json()["public_key"], key)
      << "used again";
  EXPECT_EQ(verify({"--public-key", key}).status, 0);
  fs::remove(Path("m.cmf.sig"));
  EXPECT_EQ(verify({}).json()["signature"], "absent");
  EXPECT_EQ(verify({"--public-key", key}).status, 1);
  EXPECT_EQ(Run({"sign", Path("none.cmf"), "--key", Path("other")}).status, 3);
  EXPECT_FALSE(fs::exists(Path("other")));
}

TEST_F(Container, ADemandedSignerIsDemandedOfEverySource) {
  const std::string key(64, 'a');
  for (const std::string& source : {Path("m.cmf"), kCheckpoint}) {
    EXPECT_EQ(Run({"verify", source}).status, 0) << source;
    EXPECT_EQ(Run({"verify", source, "--public-key", ""}).status, 2) << source;
    EXPECT_EQ(Run({"verify", source}, "", {"CMFORGE_PUBLIC_KEY="}).status, 2) << source;
    EXPECT_EQ(Run({"verify", source}, "", {"CMFORGE_VERIFY_PUBLIC_KEY="}).status, 2) << source;
  }
  EXPECT_EQ(Run({"verify", kCheckpoint, "--public-key", key}).status, 1);
  fs::copy_file(kCheckpoint + "/model.safetensors", Path("w.safetensors"));
  EXPECT_EQ(Run({"verify", Path("w.safetensors"), "--public-key", key}).status, 1);
  const Ran sign = Run({"sign", Path("w.safetensors"), "--key", Path("key"), "--json"});
  ASSERT_EQ(sign.status, 0) << sign.err;
  EXPECT_EQ(
      Run({"verify", Path("w.safetensors"), "--public-key", sign.json()["public_key"].get<std::string>()})
          .status,
      0);
  EXPECT_EQ(Run({"verify", Path("w.safetensors"), "--public-key", key}).status, 1);
}

TEST_F(Container, AnyShardSignsTheSet) {
  ASSERT_EQ(
      Run({"shard", Path("m.cmf"), "--output-prefix", Path("s"), "--shard-max-gb", "1e-5", "-q"}).status, 0);
  const Json files =
      Run({"shard", Path("m.cmf"), "--output-prefix", Path("s"), "--shard-max-gb", "1e-5", "--json"}).json();
  const auto last = files["files"].back()["file"].get<std::string>();
  ASSERT_EQ(Run({"sign", last, "--key", Path("key"), "-q"}).status, 0);
  for (const Json& file : files["files"]) EXPECT_TRUE(fs::exists(file["file"].get<std::string>() + ".sig"));
  EXPECT_EQ(Run({"verify", last, "--json"}).json()["signature"], "valid");
}

TEST_F(Container, ShardsOpenByAnyNameAndGiveTheSameLogitsAndTheSameFileAgain) {
  const Ran shard =
      Run({"shard", Path("m.cmf"), "--output-prefix", Path("parts"), "--shard-max-gb", "1e-5", "--json"});
  ASSERT_EQ(shard.status, 0) << shard.err;
  const Json files = shard.json()["files"];
  ASSERT_GE(files.size(), 2u);
  const std::string logits = Logits(Path("m.cmf"));
  for (const Json& file : files) {
    const auto path = file["file"].get<std::string>();
    EXPECT_EQ(Logits(path), logits) << path;
    EXPECT_EQ(Run({"verify", path}).status, 0) << path;
    ASSERT_EQ(Run({"unshard", path, "--output", Path("again.cmf"), "-q"}).status, 0);
    EXPECT_EQ(Slurp(Path("again.cmf")), Slurp(Path("m.cmf"))) << "joined from " << path;
    ASSERT_EQ(Run({"compact", path, "--output", Path("compact.cmf"), "-q"}).status, 0);
    EXPECT_EQ(Slurp(Path("compact.cmf")), Slurp(Path("m.cmf"))) << "compacted from " << path;
  }
  // Each by itself, where its siblings are not.
  fs::create_directory(folder_ / "alone");
  const fs::path second = files[1]["file"].get<std::string>();
  fs::copy_file(second, folder_ / "alone" / second.filename());
  const std::string lone = (folder_ / "alone" / second.filename()).string();
  const Ran verified = Run({"verify", lone});
  EXPECT_EQ(verified.status, 0);
  const std::string which = "shard 2 of " + std::to_string(files.size());
  EXPECT_NE(verified.out.find(which + ": the others are not here"), std::string::npos) << verified.out;
  EXPECT_EQ(Run({"verify", lone, "--json"}).json()["only_shard"], Json({{"no", 2}, {"count", files.size()}}));
  EXPECT_FALSE(Run({"verify", second.string(), "--json"}).json().contains("only_shard"));
  // Under a name of another shard, alone or beside the rest.
  const std::string first = files[0]["file"].get<std::string>();
  for (const std::string& renamed : {(folder_ / "alone" / fs::path(first).filename()).string(), first}) {
    const std::string before = fs::exists(renamed) ? Slurp(renamed) : "";
    fs::copy_file(second, renamed, fs::copy_options::overwrite_existing);
    const Ran wrong = Run({"verify", renamed});
    EXPECT_EQ(wrong.status, 1) << wrong.out;
    EXPECT_NE(wrong.out.find("the header says " + which), std::string::npos) << wrong.out;
    if (before.empty()) {
      fs::remove(renamed);
    } else {
      std::ofstream(renamed, std::ios::binary) << before;
    }
  }
  const Ran alone = Run({"logits", (folder_ / "alone" / second.filename()).string(), "--tokens", "1"});
  EXPECT_EQ(alone.status, 3) << alone.err;
  EXPECT_NE(alone.err.find("shard 1 of"), std::string::npos) << alone.err;
  EXPECT_EQ(Run({"unshard", Path("m.cmf"), "--output", Path("x.cmf")}).status, 2);
  EXPECT_EQ(Run({"shard", Path("m.cmf"), "--output-prefix", Path("x"), "--shard-max-gb", "0"}).status, 2);
  EXPECT_EQ(Run({"shard", kCheckpoint, "--output-prefix", Path("x"), "--shard-max-gb", "1"}).status, 2);
}

TEST_F(Container, AShardOfAnotherModelIsReportedBesideOtherDamage) {
  ASSERT_EQ(
      Run({"convert", "-q", "--model", kCheckpoint, "--quant", "f16", "--output", Path("other.cmf")}).status,
      0);
  const auto split = [&](const std::string& file, const std::string& prefix) {
    const Ran ran =
        Run({"shard", Path(file), "--output-prefix", Path(prefix), "--shard-max-gb", "1e-5", "--json"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    std::vector<std::string> paths;
    const Json json = ran.json();
    for (const Json& part : json["files"]) paths.push_back(part["file"]);
    return paths;
  };
  const auto ours = split("m.cmf", "ours"), others = split("other.cmf", "others");
  ASSERT_EQ(ours.size(), others.size());
  ASSERT_GE(ours.size(), 2u);
  fs::copy_file(others.back(), ours.back(), fs::copy_options::overwrite_existing);
  const auto problems = [&] { return Run({"verify", ours[0], "--json"}).json()["problems"]; };
  ASSERT_EQ(problems().size(), 1u) << problems();
  std::string damaged = Slurp(ours[0]);
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 0x55);
  std::ofstream(ours[0], std::ios::binary) << damaged;
  EXPECT_EQ(problems().size(), 2u) << problems();
}

TEST_F(Container, ConversionsWriteShardsAndThoseAreTheSameModel) {
  const Ran ran =
      Run({"convert", "--model", kCheckpoint, "--output", Path("c.cmf"), "--shard-max-gb", "1e-5", "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const Json files = ran.json()["files"];
  ASSERT_GE(files.size(), 3u);
  EXPECT_FALSE(fs::exists(Path("c.cmf")));
  EXPECT_EQ(Run({"verify", files[1].get<std::string>()}).status, 0);
  EXPECT_EQ(Logits(files[1].get<std::string>()), Logits(Path("m.cmf")));
  ASSERT_EQ(Run({"unshard", files[0].get<std::string>(), "--output", Path("u.cmf"), "-q"}).status, 0);
  EXPECT_EQ(Slurp(Path("u.cmf")), Slurp(Path("m.cmf")));
  EXPECT_EQ(Run({"convert", "--model", kCheckpoint, "--output", Path("x.cmf"), "--shard-max-gb", "0"}).status,
            2);
}

TEST_F(Container, ForeignShardsJoinWithEverythingTheyHad) {
  const std::string set = Cmf("py-tiny-sharded-00003-of-00004.cmf");
  ASSERT_EQ(Run({"unshard", set, "--output", Path("one.cmf"), "-q"}).status, 0);
  EXPECT_EQ(Run({"verify", Path("one.cmf")}).status, 0);
  const Ran diff = Run({"diff", set, Path("one.cmf"), "--exit-code"});
  EXPECT_EQ(diff.status, 0) << diff.out;
  EXPECT_EQ(Logits(set), Logits(Path("one.cmf")));
  const Json header = Run({"info", Path("one.cmf"), "--json"}).json()["header"];
  EXPECT_FALSE(header.contains("shard"));
}

TEST_F(Container, CompactingIsAFreshWriteAndPassesNoDamageOn) {
  ASSERT_EQ(Run({"compact", Path("m.cmf"), "--output", Path("c.cmf"), "-q"}).status, 0);
  EXPECT_EQ(Slurp(Path("c.cmf")), Slurp(Path("m.cmf")));
  EXPECT_EQ(Run({"compact", Path("m.cmf"), "--output", Path("m.cmf")}).status, 2) << "the source itself";
  Flip("m.cmf", TensorOffset("m.cmf"));
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"compact", Path("m.cmf"), "--output", Path("bad.cmf")},
        {"shard", Path("m.cmf"), "--output-prefix", Path("bad"), "--shard-max-gb", "1e-5"}}) {
    const Ran bad = Run(command);
    EXPECT_EQ(bad.status, 4) << bad.err;
    EXPECT_NE(bad.err.find("model.norm.weight"), std::string::npos) << bad.err;
    for (const auto& entry : fs::directory_iterator(folder_))
      EXPECT_FALSE(entry.path().filename().string().starts_with("bad")) << entry.path();
  }
  const Ran header = Run({"compact", Cmf("bad/header-byte-flipped.cmf"), "--output", Path("bad.cmf")});
  EXPECT_EQ(header.status, 4);
  EXPECT_NE(header.err.find("header"), std::string::npos) << header.err;
}

TEST_F(Container, DiffNamesWhatDiffers) {
  ASSERT_EQ(
      Run({"convert", "-q", "--model", kCheckpoint, "--output", Path("f.cmf"), "--quant", "f16"}).status, 0);
  const Ran same = Run({"diff", Path("m.cmf"), Path("m.cmf"), "--json", "--exit-code"});
  EXPECT_EQ(same.status, 0);
  EXPECT_TRUE(same.json()["identical"].get<bool>());
  const Ran other = Run({"diff", Path("m.cmf"), Path("f.cmf"), "--json", "--values"});
  EXPECT_EQ(other.status, 0) << "a difference is an answer, not a fault";
  const Json json = other.json();
  EXPECT_FALSE(json["identical"].get<bool>());
  EXPECT_TRUE(json["arch"].empty()) << json["arch"];
  EXPECT_GT(json["tensors"]["changed"].size(), 5u);
  EXPECT_GT(json["tensors"]["same"].get<int>(), 3);  // norms are f16 in both
  for (const Json& change : json["tensors"]["changed"]) {
    EXPECT_EQ(change["what"], "encoding");
    EXPECT_GT(change["relative_error"].get<double>(), 0);
    EXPECT_LT(change["relative_error"].get<double>(), 0.02);
  }
  EXPECT_EQ(Run({"diff", Path("m.cmf"), Path("f.cmf"), "--exit-code", "-q"}).status, 1);
  // A checkpoint has no recorded hashes: they are computed.
  const Json against = Run({"diff", kCheckpoint, Path("m.cmf"), "--json"}).json();
  EXPECT_TRUE(against["tensors"]["only_a"].empty());
  EXPECT_TRUE(against["tensors"]["only_b"].empty());
  const Json self = Run({"diff", kCheckpoint, kCheckpoint + "/model.safetensors", "--json"}).json();
  EXPECT_TRUE(self["tensors"]["changed"].empty());
  const Json masks = Run({"diff", Cmf("py-tiny-f16.cmf"), Cmf("py-tiny-f32-masks.cmf"), "--json"}).json();
  EXPECT_FALSE(masks["masks"]["only_b"].empty());
  const Json skills = Run({"diff", Cmf("rs-qwen3-q8.cmf"), Cmf("rs-qwen3-skilladd.cmf"), "--json"}).json();
  EXPECT_FALSE(skills["skills"]["only_b"].empty());
  EXPECT_EQ(Run({"diff", Path("m.cmf"), Path("none.cmf")}).status, 3);
}

}  // namespace
}  // namespace cmforge
