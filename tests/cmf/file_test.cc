// Opening: every fixture, every validation rule.
#include "cmf/file.h"

#include "cmf/hash64.h"
#include "files.h"
#include "quant/encoding.h"

namespace cmforge::cmf {
namespace {

TEST(File, OpensEveryFixture) {
  for (const fs::path& path : AllFixtures()) {
    const auto file = File::Open(path);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_FALSE(file->tensors().empty()) << path;
    for (const TensorInfo& tensor : file->tensors()) {
      const auto view = file->Read(tensor.name);
      ASSERT_TRUE(view) << view.error().message;
      EXPECT_EQ(view->bytes.size(), tensor.nbytes);
      EXPECT_EQ(Hash64(view->bytes), file->PlaceOf(tensor).hash) << path << " " << tensor.name;
    }
  }
}

}  // namespace
}  // namespace cmforge::cmf
