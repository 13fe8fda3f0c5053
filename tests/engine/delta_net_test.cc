// The gated delta net layer against a layer recorded from the format's reference runtime.
#include <cmath>
#include <cstring>

#include "engine/model_fixture.h"
#include "engine/pass.h"

namespace cmforge::engine {
namespace {

Linear MakeLinear(const Json& values, int64_t rows, int64_t cols) {
  auto floats = std::make_shared<std::vector<float>>(values.get<std::vector<float>>());
  EXPECT_EQ(floats->size(), static_cast<size_t>(rows * cols));
  const TensorView view{DType::kF32, {rows, cols}, std::as_bytes(std::span(*floats)), floats};
  Linear linear;
  auto weight = LinearWeight::Make(view, "test");
  EXPECT_TRUE(weight);
  linear.weight = std::move(*weight);
  return linear;
}

DeltaNet MakeNet(const Json& golden) {
  const Json &c = golden["cfg"], &w = golden["weights"];
  DeltaNet net;
  net.key_heads = c["num_k_heads"];
  net.value_heads = c["num_v_heads"];
  net.key_dim = c["key_head_dim"];
  net.value_dim = c["value_head_dim"];
  net.kernel = c["conv_kernel"];
  const int64_t hidden = c["hidden_size"], inner = net.value_heads * net.value_dim;
  net.qkv = MakeLinear(w["in_proj_qkv"], net.channels(), hidden);
  net.z = MakeLinear(w["in_proj_z"], inner, hidden);
  net.a = MakeLinear(w["in_proj_a"], net.value_heads, hidden);
  net.b = MakeLinear(w["in_proj_b"], net.value_heads, hidden);
  net.out = MakeLinear(w["out_proj"], hidden, inner);
  for (int64_t tap = 0; tap < net.kernel; ++tap) {
    for (int64_t channel = 0; channel < net.channels(); ++channel) {
      net.taps.push_back(w["conv1d"][static_cast<size_t>(channel * net.kernel + tap)].get<float>());
    }
  }
  for (const Json& a : w["A_log"]) net.decay_log.push_back(std::exp(a.get<float>()));
  net.dt_bias = w["dt_bias"].get<std::vector<float>>();
  net.norm = w["norm"].get<NormWeight>();
  return net;
}

TEST(DeltaNet, GivesTheRecordedOutputsHoweverTheTokensCome) {
  const Json golden = ReadJsonFile(FixtureFolder("gdn_golden.json"));
  auto network = std::make_shared<Network>();
  network->config.hidden_size = golden["cfg"]["hidden_size"];
  network->config.rms_norm_eps = golden["cfg"]["rms_eps"];
  network->config.num_layers = 1;
  Layer layer;
  layer.mixer = MakeNet(golden);
  network->layers.push_back(std::move(layer));
  const auto& net = std::get<DeltaNet>(network->layers[0].mixer);
  const int64_t hidden = network->config.hidden_size;
  std::vector<float> x, want;
  for (const Json& row : golden["x"]) {
    for (const Json& value : row) x.push_back(value.get<float>());
  }
  for (const Json& row : golden["expect"]) {
    for (const Json& value : row) want.push_back(value.get<float>());
  }
  const auto tokens = static_cast<int64_t>(golden["x"].size());
  ASSERT_EQ(tokens, 7);

  std::vector<float> first;
  for (const auto* kernels : FloatKernelsThatRun()) {
    for (const int64_t piece : {7, 1, 3}) {
      auto model = std::make_shared<SequenceModel>();
      model->network = network.get();
      auto sequence = EngineSequence::Make(model, 64, KvType::kF32);
      ASSERT_TRUE(sequence) << sequence.error().message;
      ThreadPool pool(2);
      Workspace work(pool, Isa::kReference);
      std::vector<float> out(x.size());
      for (int64_t at = 0; at < tokens; at += piece) {
        Pass pass{*network, *kernels, ComputeMode::kExact, work, nullptr, {}, std::min(piece, tokens - at)};
        RowSpan span;
        span.sequence = sequence->get();
        span.count = pass.rows;
        span.position = at;
        pass.spans.push_back(span);
        RunDeltaNet(pass, net, 0, x.data() + at * hidden, out.data() + at * hidden);
      }
      for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(want[i], out[i], 1e-5) << kernels->isa << " " << i;
      if (first.empty()) first = out;
      EXPECT_EQ(0, std::memcmp(first.data(), out.data(), out.size() * sizeof(float)))
          << kernels->isa << piece;
    }
  }
}

}  // namespace
}  // namespace cmforge::engine
