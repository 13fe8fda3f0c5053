// info: bars for people, a picture on request.
#include "cli/program.h"

namespace cmforge {
namespace {

class Info : public CliTest {
 protected:
  static std::string Cmf(const std::string& name) { return std::string(CMFORGE_TEST_DATA) + "/cmf/" + name; }
};

TEST_F(Info, ShowsSectionsRolesAndEncodings) {
  const Ran ran = Run({"info", Cmf("py-tiny-q4_block-masks.cmf")});
  ASSERT_EQ(ran.status, 0) << ran.err;
  for (const char* word : {"by section", "by role", "by encoding", "weights", "masks", "q4_block",
                           "attention", "feed-forward", "█", "task 'general'", "intact"}) {
    EXPECT_NE(ran.out.find(word), std::string::npos) << word << "\n" << ran.out;
  }
  EXPECT_EQ(ran.out.find('\033'), std::string::npos) << "no colours into a pipe";
  EXPECT_NE(Run({"info", Cmf("bad/header-byte-flipped.cmf")}).out.find("header: its hash is"),
            std::string::npos);
  EXPECT_NE(Run({"info", Cmf("py-tiny-sharded-00002-of-00004.cmf")}).out.find("by shard"), std::string::npos);
  EXPECT_NE(Run({"info", Cmf("py-tiny-skills.cmf")}).out.find("skill "), std::string::npos);
}

TEST_F(Info, DrawsTheSameAsAPicture) {
  const Ran ran = Run({"info", Cmf("py-tiny-q4_block-masks.cmf"), "--svg", Path("sizes.svg"), "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.json()["format"], "cmf");
  const std::string svg = Slurp(Path("sizes.svg"));
  EXPECT_TRUE(svg.starts_with("<svg xmlns"));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  for (const char* word : {"by section", "by role", "by encoding", "q4_block", "feed-forward"})
    EXPECT_NE(svg.find(word), std::string::npos) << word;
  // A hostile file name stays text.
  std::filesystem::copy_file(Cmf("py-tiny-f16.cmf"), Path("<b>&.cmf"));
  ASSERT_EQ(Run({"info", Path("<b>&.cmf"), "--svg", Path("h.svg")}).status, 0);
  EXPECT_NE(Slurp(Path("h.svg")).find("&lt;b&gt;&amp;.cmf"), std::string::npos);
  EXPECT_EQ(Slurp(Path("h.svg")).find("<b>"), std::string::npos);
  EXPECT_EQ(Run({"info", Path("<b>&.cmf"), "--svg", Path("<b>&.cmf")}).status, 2) << "never over the model";
}

}  // namespace
}  // namespace cmforge
