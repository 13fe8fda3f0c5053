// Packages with palettes and scaled integers: what is stored is what was asked for, decoded by a reader that
// shares nothing with ours; meta.yaml; widths mixed to an average; work that goes on where it was
// interrupted; refusals.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "base/half.h"
#include "coreml/compression.h"
#include "coreml/graphs/weight_rows.h"
#include "coreml/package_fixture.h"
#include "mil/package.h"
#include "mil/sha256.h"
#include "quant/palette.h"
#include "quant/palette_optimum.h"

namespace cmforge::coreml {
namespace {

namespace fs = std::filesystem;

Compression Forms(const std::string& embeddings, const std::string& ffn, const std::string& lmhead) {
  const auto parse = [](const std::string& text) {
    const auto form = text.starts_with("int") ? ParseScaledForm(text) : ParsePaletteForm(text);
    EXPECT_TRUE(form) << form.error().message;
    return form.value_or(WeightForm());
  };
  Compression out;
  out.embeddings = parse(embeddings);
  out.ffn = parse(ffn);
  out.lmhead = parse(lmhead);
  return out;
}

struct Request {
  std::string fixture = "qwen3_yarn";
  GraphOptions graph{32, 4, 1, 1};
  Compression compression;
  int threads = 1;
  bool resume = false;
  RunControl control;
};

/// A trained model's head in four bits, its errors weighed by `stats`, which must outlive the request.
Request HeadBy(const ChannelStats& stats) {
  Request request;
  request.fixture = "tiny-qwen3";
  request.graph = {64, 8, 1, 16};
  request.compression = Forms("none", "none", "4");
  request.compression.method = PaletteMethod::kActivation;
  request.compression.statistics = &stats;
  return request;
}

Result<PackageReport> Write(const Request& request, const fs::path& target) {
  const Checkpoint checkpoint = OpenFixture(request.fixture);
  PackageOptions options;
  options.graph = request.graph;
  options.compression = request.compression;
  options.forms = PackageForms::kPackage;
  options.identity = request.fixture;
  options.resume = request.resume;
  ThreadPool pool(request.threads);
  return WritePackage(SourceOf(checkpoint, request.fixture), options, target, pool, request.control);
}

std::string Hex(const mil::Sha256Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

/// A matrix of a checkpoint as it should come out of a package, and the hash of its fp16 numbers.
std::string ExpectedHash(const TensorSource& source, const std::string& name, const WeightForm& form) {
  auto rows = TensorRows(source, name);
  EXPECT_TRUE(rows) << rows.error().message;
  std::vector<float> numbers(static_cast<size_t>(rows->rows * rows->cols));
  rows->read(0, rows->rows, numbers.data());
  std::vector<uint16_t> halves;
  for (const float number : numbers) halves.push_back(F32ToF16(number));
  if (form.kind == WeightForm::Kind::kPalette) {
    const int64_t group = FormFor(form, rows->rows, rows->cols).group;
    const auto n = static_cast<size_t>(group * rows->cols);
    for (size_t at = 0; at < halves.size(); at += n) {
      std::vector<uint16_t> table(size_t{1} << form.bits);
      std::vector<uint8_t> indices(n);
      EXPECT_TRUE(PaletteFitter().Fit(std::span(halves).subspan(at, n), {}, form.bits, table, indices));
      for (size_t i = 0; i < n; ++i) halves[at + i] = table[indices[i]];
    }
  } else {
    const auto block = static_cast<size_t>(FormFor(form, rows->rows, rows->cols).group);
    const float most = form.bits == 8 ? 127 : 7;
    for (size_t at = 0; at < halves.size(); at += block) {
      float largest = 0;
      for (size_t i = at; i < at + block; ++i) largest = std::max(largest, std::abs(F16ToF32(halves[i])));
      const float scale = RoundToF16(largest / most);
      for (size_t i = at; i < at + block; ++i) {
        const auto code =
            static_cast<int>(std::clamp(std::nearbyint(F16ToF32(halves[i]) / scale), -most, most));
        halves[i] = F32ToF16(static_cast<float>(code) * scale);
      }
    }
  }
  return Hex(mil::Sha256Of(std::as_bytes(std::span(halves))));
}

struct Decoded {
  std::string stored, hash;
};

/// Every compressed constant of the folder's packages, as tests/oracle/mlpackage_reader.py decodes it.
std::map<std::string, Decoded> DecodeElsewhere(const fs::path& folder) {
  std::string command =
      std::string("/usr/bin/python3 ") + CMFORGE_SOURCE_DIR + "/tests/oracle/mlpackage_reader.py --decode";
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".mlpackage") command += " '" + entry.path().string() + "'";
  }
  std::map<std::string, Decoded> out;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return out;
  std::string text;
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, n);
  EXPECT_EQ(pclose(pipe), 0) << text;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const size_t first = line.find(": "), last = line.rfind(": ");
    if (first == last) continue;
    const Decoded decoded{line.substr(first + 2, last - first - 2), line.substr(last + 2)};
    const auto [it, is_new] = out.emplace(line.substr(0, first), decoded);
    EXPECT_EQ(it->second.hash, decoded.hash) << "another function has other numbers: " << line;
  }
  return out;
}

#define CMF_NEEDS_NUMPY()                                                     \
  if (std::system("/usr/bin/python3 -c 'import numpy' >/dev/null 2>&1") != 0) \
  GTEST_SKIP() << "no /usr/bin/python3 with numpy: install python3-numpy"

TEST(CompressedPackage, EveryWidthAndGroupIsDecodedAlikeElsewhere) {
  CMF_NEEDS_NUMPY();
  const Checkpoint checkpoint = OpenFixture("qwen3_yarn");
  struct Case {
    std::string form, of_128, of_131;  // tables of 128 and of 131 channels, 32 columns
  };
  for (const Case& c : {Case{"2", "lut fp16[16, 1, 1, 1, 4, 1]", "lut fp16[131, 1, 1, 1, 4, 1]"},
                        Case{"3,1", "lut fp16[128, 1, 1, 1, 8, 1]", "lut fp16[131, 1, 1, 1, 8, 1]"},
                        Case{"4,16", "lut fp16[8, 1, 1, 1, 16, 1]", "lut fp16[131, 1, 1, 1, 16, 1]"},
                        Case{"6,0", "lut fp16[1, 1, 1, 1, 64, 1]", "lut fp16[1, 1, 1, 1, 64, 1]"},
                        Case{"6,3", "lut fp16[64, 1, 1, 1, 64, 1]", "lut fp16[131, 1, 1, 1, 64, 1]"},
                        Case{"8", "lut fp16[16, 1, 1, 1, 256, 1]", "lut fp16[131, 1, 1, 1, 256, 1]"},
                        Case{"4,-1", "lut fp16[1, 1, 1, 1, 16, 1]", "lut fp16[1, 1, 1, 1, 16, 1]"},
                        Case{"int8", "scale fp16[128, 1, 1, 1]", "scale fp16[131, 1, 1, 1]"},
                        Case{"int4,16", "scale fp16[128, 2, 1, 1]", "scale fp16[131, 2, 1, 1]"},
                        Case{"int4,24", "scale fp16[128, 2, 1, 1]", "scale fp16[131, 2, 1, 1]"}}) {
    SCOPED_TRACE(c.form);
    const fs::path folder = ScratchFolder() / "package";
    Request request;
    request.compression = Forms(c.form, c.form, c.form);
    const auto report = Write(request, folder);
    ASSERT_TRUE(report) << report.error().message;
    const WeightForm& form = request.compression.ffn;
    const auto decoded = DecodeElsewhere(folder);
    const std::string suffix = form.kind == WeightForm::Kind::kPalette ? "_palettized" : "_quantized";
    const std::string codes = form.kind == WeightForm::Kind::kScaled
                                  ? fmt::format("data int{}", form.bits)
                                  : fmt::format("indices uint{}", form.bits);
    const auto expect = [&](const std::string& stored_name, const std::string& source_name,
                            const std::string& shape, const std::string& tables) {
      ASSERT_TRUE(decoded.contains(stored_name + suffix)) << stored_name;
      const Decoded& found = decoded.at(stored_name + suffix);
      EXPECT_EQ(found.stored, fmt::format("{}{}, {}", codes, shape, tables)) << stored_name;
      EXPECT_EQ(found.hash, ExpectedHash(*checkpoint.tensors, source_name, form)) << stored_name;
    };
    expect("model_layers_0_self_attn_q_proj_weight", "model.layers.0.self_attn.q_proj.weight",
           "[128, 32, 1, 1]", c.of_128);
    expect("lm_head_1_weight", "model.embed_tokens.weight", "[131, 32, 1, 1]", c.of_131);
    std::string of_table = c.of_131;  // a table that is looked up has two axes
    const bool is_palette = form.kind == WeightForm::Kind::kPalette;
    of_table.replace(of_table.find(is_palette ? ", 1, 1, 1, " : ", 1, 1]"), is_palette ? 11 : 7,
                     is_palette ? ", 1, " : "]");
    expect("model_embed_tokens_weight", "model.embed_tokens.weight", "[131, 32]", of_table);
    for (const auto& [name, stored] : decoded) {
      EXPECT_EQ(name.find("norm"), name.npos) << name;
      EXPECT_EQ(name.find("rope"), name.npos) << name;
      EXPECT_EQ(name.find("gate_proj"), name.npos) << "2048 numbers stay fp16: " << name;
    }
    // 131 channels divide by themselves only, 32 columns not by 24.
    bool is_uneven = false;
    for (const std::string& warning : report->warnings)
      is_uneven = is_uneven || warning.find("do not divide into groups") != warning.npos;
    EXPECT_EQ(is_uneven, c.form == "int4,24" || (is_palette && form.group > 1));
  }
}

TEST(CompressedPackage, RealGroupsReachTheOptimum) {
  const Checkpoint checkpoint = OpenFixture("tiny-qwen3");
  const auto rows = TensorRows(*checkpoint.tensors, "model.layers.2.mlp.up_proj.weight");
  ASSERT_TRUE(rows);
  std::vector<float> numbers(static_cast<size_t>(4 * rows->cols));
  PaletteFitter fitter;
  for (const int bits : {2, 3, 4}) {
    rows->read(4 * bits, 4 * bits + 4, numbers.data());
    std::vector<uint16_t> halves;
    double energy = 0;
    for (const float number : numbers) {
      halves.push_back(F32ToF16(number));
      energy += static_cast<double>(number) * static_cast<double>(number);
    }
    std::vector<float> weights(static_cast<size_t>(rows->cols));
    for (size_t j = 0; j < weights.size(); ++j) weights[j] = 1 + static_cast<float>(j % 7);
    for (const std::vector<float>& weighing : {std::vector<float>(), weights}) {
      std::vector<uint16_t> table(size_t{1} << bits);
      const auto error = fitter.Fit(halves, weighing, bits, table, {});
      ASSERT_TRUE(error);
      const double least = PaletteOptimum(halves, weighing, table.size());
      EXPECT_GE(*error, least * (1 - 1e-9));
      EXPECT_LE(*error, least * 1.001 + energy * 0x1p-20) << bits;  // centroids are rounded to fp16
    }
  }
}

TEST(CompressedPackage, LeavesRoutersNormsAndSmallTensorsInFp16) {
  CMF_NEEDS_NUMPY();
  const fs::path folder = ScratchFolder() / "package";
  Request request;
  request.fixture = "qwen3_5_moe";
  request.compression = Forms("none", "4", "none");
  ASSERT_TRUE(Write(request, folder));
  std::set<std::string> kinds;
  for (const auto& [name, stored] : DecodeElsewhere(folder)) {
    const std::string after_layer = name.substr(name.find('_', sizeof "model_layers_" - 1) + 1);
    kinds.insert(after_layer);
  }
  EXPECT_EQ(kinds, (std::set<std::string>{
                       "linear_attn_in_proj_qkv_weight_palettized", "mlp_experts_down_proj_weight_palettized",
                       "mlp_experts_gate_proj_weight_palettized", "mlp_experts_up_proj_weight_palettized"}));
}

TEST(CompressedPackage, TellsMetaYamlAndFileNamesAlike) {
  const fs::path folder = ScratchFolder() / "package";
  const auto lines = [&](const Request& request) {
    EXPECT_TRUE(Write(request, folder));
    std::string out;
    const std::string text = ReadText(folder / "meta.yaml");
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      const std::string line = text.substr(at, end - at);
      for (const char* key : {"    lut_", "    quant_", "    embeddings:", "    lm_head:", "    ffn:"}) {
        if (line.starts_with(key)) out += line.substr(4) + "\n";
      }
      at = end + 1;
    }
    const auto parts = FindParts(folder, MetaOf(folder));
    EXPECT_TRUE(parts) << parts.error().message;
    return out;
  };
  Request request;
  request.compression = Forms("none", "6", "8,0");
  EXPECT_EQ(lines(request),
            "lut_embeddings: none\n"
            "lut_ffn: 6 # kmeans\n"
            "lut_ffn_per_channel: 8\n"
            "lut_lmhead: 8 # kmeans\n"
            "lut_lmhead_per_channel: 0\n"
            "embeddings: qwen_embeddings.mlpackage\n"
            "lm_head: qwen_lm_head_lut8.mlpackage\n"
            "ffn: qwen_FFN_PF_lut6_chunk_01of01.mlpackage\n");
  const auto package = mil::OpenPackage(folder / "qwen_FFN_PF_lut6_chunk_01of01.mlpackage");
  ASSERT_TRUE(package);
  EXPECT_EQ(package->model.description.metadata.user_defined.at("com.anemll.lut_bits"), "6");
  request.compression = Forms("8", "int8", "int4,16");
  EXPECT_EQ(lines(request),
            "lut_embeddings: 8 # kmeans\n"
            "lut_embeddings_per_channel: 8\n"
            "lut_ffn: none\n"
            "quant_ffn: int8\n"
            "lut_lmhead: none\n"
            "quant_lmhead: int4,16\n"
            "embeddings: qwen_embeddings_lut8.mlpackage\n"
            "lm_head: qwen_lm_head_int4.mlpackage\n"
            "ffn: qwen_FFN_PF_int8_chunk_01of01.mlpackage\n");
  // Names made of the prefix, by readers that are not told them.
  PackageMeta meta = MetaOf(folder);
  meta.embeddings = meta.lm_head = meta.ffn = "";
  EXPECT_TRUE(FindParts(folder, meta));
  // Two layers of a 4096 and a 4096 matrix: half of them at 6 bits is 5 on average, a quarter 4.5.
  request.compression = Forms("none", "none", "none");
  request.compression.ffn_mixed = 4.5;
  const std::string mixed = lines(request);
  EXPECT_NE(mixed.find("lut_ffn: 4 # kmeans\nlut_ffn_per_channel: 8\nlut_ffn_mixed: 4.50 # "), mixed.npos)
      << mixed;
  EXPECT_NE(mixed.find("ffn: qwen_FFN_PF_lut4_chunk_01of01.mlpackage\n"), mixed.npos) << mixed;
}

TEST(CompressedPackage, RunsCloserToTheModelWithMoreBits) {
  const auto tokens = SomeTokens(11, 131);
  const auto reference = LoadReference("qwen3_yarn");
  const auto sequence = NewSequence(*reference);
  const auto wanted = LastLogits(*reference, *sequence, tokens);
  double before = 1e9;
  for (const char* form : {"2", "4", "8"}) {
    const fs::path folder = ScratchFolder() / "package";
    Request request;
    request.compression = Forms(form, form, form);
    ASSERT_TRUE(Write(request, folder));
    const auto package = LoadPackage(folder, MetaOf(folder));
    ASSERT_TRUE(package) << package.error().message;
    const auto own = NewSequence(**package);
    const auto logits = LastLogits(**package, *own, tokens);
    ASSERT_EQ(logits.size(), wanted.size());
    double error = 0;
    for (size_t i = 0; i < logits.size(); ++i)
      error += std::pow(static_cast<double>(logits[i]) - static_cast<double>(wanted[i]), 2);
    EXPECT_LT(error, before) << form;
    before = error;
  }
}

std::map<std::string, std::string> AllFiles(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files[fs::relative(entry.path(), folder)] = ReadText(entry.path());
  }
  return files;
}

TEST(CompressedPackage, TheSameBytesWhateverTheThreadsAndInterruptions) {
  const fs::path scratch = ScratchFolder();
  Request request;
  request.fixture = "qwen3_5_moe";
  request.graph = {64, 8, 2, 4};
  request.compression = Forms("6", "none", "int4,8");
  request.compression.ffn_mixed = 3.5;
  request.threads = 3;
  ASSERT_TRUE(Write(request, scratch / "three"));
  const auto wanted = AllFiles(scratch / "three");
  EXPECT_GT(wanted.size(), 10u);
  // Interrupted over and over, each time a little later, and taken up each time.
  request.threads = 1;
  request.resume = true;
  int64_t most = 0;
  int runs = 0;
  for (bool is_done = false; !is_done && runs < 500; ++runs) {
    std::atomic<bool> cancelled = false;
    int reports = 0;
    request.control.cancelled = &cancelled;
    request.control.progress = [&](std::string_view, int64_t, int64_t, ProgressUnit) {
      if (++reports > 3 * runs) cancelled = true;
    };
    const auto report = Write(request, scratch / "one");
    is_done = report.has_value();
    if (is_done) {
      most = report->resumed;
    } else {
      ASSERT_EQ(report.error().kind, ErrorKind::kCancelled) << report.error().message;
      ASSERT_TRUE(fs::exists(scratch / "one.part"));
      ASSERT_FALSE(fs::exists(scratch / "one"));
    }
  }
  EXPECT_GT(runs, 5);
  EXPECT_GT(most, 10) << "compressed by earlier runs";
  EXPECT_EQ(AllFiles(scratch / "one"), wanted);
  EXPECT_FALSE(fs::exists(scratch / "one.part"));
  // Without resume an interruption leaves nothing at all.
  std::atomic<bool> cancelled = false;
  int reports = 0;
  request.resume = false;
  request.control.cancelled = &cancelled;
  request.control.progress = [&](std::string_view, int64_t, int64_t, ProgressUnit) {
    cancelled = ++reports > 4;
  };
  ASSERT_FALSE(Write(request, scratch / "two"));
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(scratch)) left.insert(entry.path().filename());
  EXPECT_EQ(left, (std::set<std::string>{"one", "three"}));
}

TEST(CompressedPackage, DamagedWorkIsDoneAgain) {
  const fs::path scratch = ScratchFolder();
  Request request;
  request.compression = Forms("4", "4", "4");
  ASSERT_TRUE(Write(request, scratch / "wanted"));
  const auto leave_work = [&] {
    std::atomic<bool> cancelled = false;
    int reports = 0;
    Request interrupted = request;
    interrupted.resume = true;
    interrupted.control.cancelled = &cancelled;
    interrupted.control.progress = [&](std::string_view, int64_t, int64_t, ProgressUnit) {
      cancelled = ++reports > 30;
    };
    EXPECT_FALSE(Write(interrupted, scratch / "package"));
    return fs::file_size(scratch / "package.part");
  };
  request.resume = true;
  const auto size = leave_work();
  ASSERT_GT(size, 5000u);
  for (const int64_t at : {int64_t{20}, int64_t{44}, int64_t{60}, int64_t{110}, int64_t{1000},
                           static_cast<int64_t>(size) - 1, int64_t{-7}, int64_t{-3000}}) {
    fs::remove(scratch / "package.part");
    ASSERT_EQ(leave_work(), size);
    if (at < 0) {  // torn off
      fs::resize_file(scratch / "package.part", size - static_cast<uint64_t>(-at));
    } else {
      std::fstream file(scratch / "package.part", std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(at);
      const int old = file.get();
      file.seekp(at);
      file.put(static_cast<char>(old ^ 0x5A));
    }
    const auto report = Write(request, scratch / "package");
    ASSERT_TRUE(report) << at << report.error().message;
    EXPECT_EQ(AllFiles(scratch / "package"), AllFiles(scratch / "wanted")) << at;
    fs::remove_all(scratch / "package");
  }
  // What does not begin as our work does is somebody else's.
  std::ofstream(scratch / "package.part") << "a download of mine";
  for (const bool resume : {false, true}) {
    request.resume = resume;
    const auto report = Write(request, scratch / "package");
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorKind::kUsage);
    EXPECT_NE(report.error().message.find("package.part"), std::string::npos) << report.error().message;
  }
  EXPECT_EQ(fs::file_size(scratch / "package.part"), 18u);
  EXPECT_FALSE(fs::exists(scratch / "package"));
}

TEST(ChooseWider, TakesWhatGainsMostPerBitWithinTheAverage) {
  const std::vector<PaletteCandidate> candidates = {
      {"a", 100, 10, 1},    // gains 0.09 a number
      {"b", 100, 20, 2},    // 0.18
      {"c", 400, 100, 20},  // 0.2, too large for the budget
      {"d", 50, 10, 1},     // 0.18, behind b by name
      {"e", 350, 1, 1},
  };
  const WiderChoice choice = ChooseWider(candidates, 4, 6, 4.4);  // 1000 numbers, 400 extra bits
  EXPECT_EQ(choice.names, (std::vector<std::string>{"b", "d"}));
  EXPECT_NEAR(choice.average, 4.3, 1e-12);
  EXPECT_EQ(ChooseWider(candidates, 4, 6, 5.999).names.size(), 4u);
  EXPECT_EQ(ChooseWider({}, 4, 6, 5).average, 4);
}

TEST(CompressedPackage, MixedWidthsLieBetweenTheirNeighbours) {
  const fs::path scratch = ScratchFolder();
  const auto error_and_bits = [&](const Compression& compression) {
    Request request;
    request.fixture = "tiny-qwen3";
    request.graph = {64, 8, 2, 16};
    request.compression = compression;
    request.threads = 2;
    const auto report = Write(request, scratch / "package");
    EXPECT_TRUE(report) << report.error().message;
    return std::pair(report->parts[1].relative_error, report->parts[1].bits);
  };
  Compression mixed = Forms("none", "4", "none");
  mixed.ffn_mixed = 4.5;
  const auto [narrow, narrow_bits] = error_and_bits(Forms("none", "4", "none"));
  const auto [wide, wide_bits] = error_and_bits(Forms("none", "6", "none"));
  const auto [between, between_bits] = error_and_bits(mixed);
  EXPECT_LT(between, narrow);
  EXPECT_GT(between, wide);
  EXPECT_GT(between_bits, narrow_bits);
  EXPECT_LT(between_bits, wide_bits);
  // Read back, the average of the indices is what was asked for.
  int64_t bits = 0, numbers = 0;
  const auto parts = FindParts(scratch / "package", MetaOf(scratch / "package"));
  ASSERT_TRUE(parts);
  for (const fs::path& chunk : parts->chunks) {
    const auto package = mil::OpenPackage(chunk);
    ASSERT_TRUE(package);
    for (const mil::Operation& op : package->model.program.functions.at("infer").body.operations) {
      if (op.type != "constexpr_lut_to_dense") continue;
      const auto& type = std::get<mil::Value>(op.inputs.at("indices")[0]).type.tensor;
      const int64_t count = ElementCount(type.shape).value_or(0);
      EXPECT_TRUE(mil::BitsOf(type.dtype) == 4 || mil::BitsOf(type.dtype) == 6);
      bits += count * mil::BitsOf(type.dtype);
      numbers += count;
    }
  }
  EXPECT_NEAR(static_cast<double>(bits) / static_cast<double>(numbers), 4.5, 0.03);
}

TEST(CompressedPackage, WeighsErrorsByWhatMeetsThem) {
  // Statistics that make one channel count a thousandfold: its numbers keep nearer to what they were.
  const Checkpoint checkpoint = OpenFixture("qwen3_yarn");
  ChannelStats stats;
  for (const TensorInfo& info : checkpoint.tensors->tensors()) {
    if (info.shape.size() != 2) continue;
    std::vector<float>& mean = stats.mean_square[info.name];
    mean.assign(static_cast<size_t>(info.shape[1]), 1.0f);
    mean[5] = 1000.0f;
  }
  const fs::path scratch = ScratchFolder();
  const auto error_of = [&](PaletteMethod method) {
    Request request;
    request.compression = Forms("none", "4", "none");
    request.compression.method = method;
    request.compression.statistics = &stats;  // errors are weighed in the report either way
    if (method == PaletteMethod::kKmeans) request.compression.statistics = nullptr;
    const auto report = Write(request, scratch / "package");
    EXPECT_TRUE(report) << report.error().message;
    EXPECT_NE(ReadText(scratch / "package/meta.yaml")
                  .find(method == PaletteMethod::kKmeans ? "lut_ffn: 4 # kmeans" : "lut_ffn: 4 # activation"),
              std::string::npos);
    return report->parts[1].relative_error;
  };
  EXPECT_LT(error_of(PaletteMethod::kActivation), 0.5 * error_of(PaletteMethod::kKmeans));
  // Statistics of another model.
  Request request;
  request.compression = Forms("none", "4", "none");
  request.compression.method = PaletteMethod::kActivation;
  stats.origin = "other.stats";
  request.compression.statistics = &stats;
  stats.mean_square.at("model.layers.1.self_attn.o_proj.weight").pop_back();
  const auto wrong = Write(request, scratch / "wrong");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().kind, ErrorKind::kUsage);
  EXPECT_NE(
      wrong.error().message.find("other.stats: 'model.layers.1.self_attn.o_proj.weight': statistics of 127"),
      std::string::npos)
      << wrong.error().message;
  stats.mean_square.erase("model.layers.1.self_attn.o_proj.weight");
  const auto missing = Write(request, scratch / "wrong");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("no statistics"), std::string::npos) << missing.error().message;
}

TEST(CompressedPackage, TheScaleOfStatisticsDoesNotMatter) {
  const std::string head = "model.embed_tokens.weight";
  const fs::path scratch = ScratchFolder();
  const auto write = [&](float scale) {
    ChannelStats stats;
    stats.origin = "some.stats";
    for (int64_t c = 0; c < 256; ++c)
      stats.mean_square[head].push_back(scale * static_cast<float>(c % 7 + 1));
    for (int64_t r = 0; r < 4096; ++r) stats.row_weight[head].push_back(scale * static_cast<float>(r % 5));
    const Request request = HeadBy(stats);
    const auto report = Write(request, scratch / "package");
    EXPECT_TRUE(report) << report.error().message;
    const auto zeros = [](const std::string& line) { return line.find("are zero") != line.npos; };
    EXPECT_EQ(std::any_of(report->warnings.begin(), report->warnings.end(), zeros), scale == 0);
    EXPECT_TRUE(std::isfinite(report->parts.back().relative_error));
    return ReadText(scratch / "package" / (report->parts.back().name + ".mlpackage") /
                    "Data/com.apple.CoreML/weights/weight.bin");
  };
  const std::string weights = write(1);
  for (const float scale : {0x1p120f, 0x1p66f, 0x1p-100f}) EXPECT_TRUE(write(scale) == weights) << scale;
  EXPECT_FALSE(write(0) == weights);  // fitted without
}

/// What no text says is not known to be free of errors.
TEST(CompressedPackage, StatisticsOfZerosAreNone) {
  const Checkpoint checkpoint = OpenFixture("qwen3_yarn");
  ChannelStats stats;
  stats.origin = "some.stats";
  for (const TensorInfo& info : checkpoint.tensors->tensors()) {
    if (info.shape.size() == 2) stats.mean_square[info.name].assign(static_cast<size_t>(info.shape[1]), 0.0f);
  }
  const fs::path scratch = ScratchFolder();
  const auto write = [&](const ChannelStats* by) {
    Request request;
    request.graph.num_chunks = 3;  // a layer each
    request.compression = Forms("none", "4", "none");
    request.compression.method = by ? PaletteMethod::kActivation : PaletteMethod::kKmeans;
    request.compression.statistics = by;
    fs::remove_all(scratch / "package");
    auto report = Write(request, scratch / "package");
    EXPECT_TRUE(report) << report.error().message;
    return report.value_or(PackageReport());
  };
  const auto weights = [&](const WrittenPart& part) {
    return ReadText(scratch / "package" / (part.name + ".mlpackage") /
                    "Data/com.apple.CoreML/weights/weight.bin");
  };
  const auto of_chunks = [&](const PackageReport& report, bool errors) {
    std::vector<std::string> out;
    for (size_t chunk = 1; chunk <= 3; ++chunk) {
      const WrittenPart& part = report.parts.at(chunk);
      out.push_back(errors ? fmt::format("{:.9f}", part.relative_error) : weights(part));
    }
    return out;
  };
  const PackageReport plain = write(nullptr);
  const auto plain_weights = of_chunks(plain, false), plain_errors = of_chunks(plain, true);
  EXPECT_GT(plain.parts[1].relative_error, 0.01);

  // None at all: all is as without.
  const PackageReport none = write(&stats);
  EXPECT_TRUE(of_chunks(none, false) == plain_weights);
  EXPECT_EQ(of_chunks(none, true), plain_errors);
  EXPECT_EQ(none.warnings.size(), plain.warnings.size() + 1);
  EXPECT_NE(none.warnings.back().find("fitted by plain k-means there: calibrate"), std::string::npos);

  // None of the second layer: it is as without, the others are not.
  for (auto& [name, values] : stats.mean_square) {
    if (name.find("layers.1.") != name.npos) continue;
    for (size_t i = 0; i < values.size(); ++i) values[i] = 0x1p-70f * static_cast<float>(i * i + 1);
  }
  const PackageReport some = write(&stats);
  EXPECT_NE(of_chunks(some, false)[0], plain_weights[0]);
  EXPECT_TRUE(of_chunks(some, false)[1] == plain_weights[1]);
  EXPECT_EQ(of_chunks(some, true)[1], plain_errors[1]);
  EXPECT_NE(some.warnings.back().find("'model.layers.1."), std::string::npos) << some.warnings.back();
}

TEST(CompressedPackage, KeepsTheLogitsThatMoveTheAnswer) {
  // One of the eight rows that share a table of the head is likely, the others are not.
  ChannelStats stats;
  stats.origin = "other.stats";
  const std::string head = "model.embed_tokens.weight";
  stats.mean_square[head].assign(256, 1.0f);
  const Request request = HeadBy(stats);
  const fs::path scratch = ScratchFolder();
  const auto error = [&] {
    const auto report = Write(request, scratch / "package");
    EXPECT_TRUE(report) << report.error().message;
    return report ? report->parts.back().relative_error : 0;
  };
  const double all_alike = error();
  std::vector<float>& weight = stats.row_weight[head];
  weight.assign(4096, 1e-3f);
  for (size_t v = 3; v < weight.size(); v += 8) weight[v] = 1;
  EXPECT_LT(error(), 0.9 * all_alike);
  weight.pop_back();
  const auto wrong = Write(request, scratch / "wrong");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().kind, ErrorKind::kUsage);
  EXPECT_NE(wrong.error().message.find("other.stats: '" + head + "': statistics of 4095 rows"),
            std::string::npos)
      << wrong.error().message;
}

}  // namespace
}  // namespace cmforge::coreml
