// What all operators share, and the layer that strings them together.
#include "engine/pass.h"

#include <algorithm>

namespace cmforge::engine {

void Observe(Pass& pass, const Linear& linear, const Activations& input) {
  if (pass.observer == nullptr || !pass.observer->wants_linear_inputs()) return;
  const auto count = static_cast<size_t>(input.tokens() * input.cols());
  pass.observer->OnLinearInput(linear.name, std::span(input.data(), count), input.cols());
}

void Observe(Pass& pass, const Linear& linear, const Activations& input, std::span<const int32_t> rows) {
  if (pass.observer == nullptr || !pass.observer->wants_linear_inputs()) return;
  std::vector<float> seen;
  for (const int32_t row : rows) {
    const float* from = input.data() + row * input.cols();
    seen.insert(seen.end(), from, from + input.cols());
  }
  pass.observer->OnLinearInput(linear.name, seen, input.cols());
}

void Multiply(Pass& pass, Activations& input, std::span<const Product> products) {
  auto& jobs = pass.work.jobs;
  jobs.clear();
  for (const auto& [linear, out] : products) {
    Observe(pass, *linear, input);
    MatMulJob job;
    job.weight = &linear->weight;
    job.input = &input;
    job.out = out;
    job.out_stride = linear->rows();
    jobs.push_back(job);
  }
  MatMul(pass.work.context, jobs, pass.mode);
  for (const auto& [linear, out] : products) {
    if (linear->bias.empty()) continue;
    const int64_t width = linear->rows();
    for (int64_t row = 0; row < input.tokens(); ++row) {
      pass.kernels.add_scaled(linear->bias.data(), 1.0f, width, out + row * width);
    }
  }
}

void Multiply(Pass& pass, Activations& input, std::initializer_list<Product> products) {
  Multiply(pass, input, std::span(products.begin(), products.size()));
}

void NormRows(Pass& pass, const float* in, const NormWeight& weight, int64_t rows, float* out) {
  const auto width = static_cast<int64_t>(weight.size());
  ForRange(pass, rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      pass.kernels.rms_norm(in + row * width, weight.data(), pass.network.config.rms_norm_eps, width,
                            out + row * width);
    }
  });
}

void PrepareAngles(Pass& pass) {
  const size_t ropes = pass.network.rope_configs.size();
  pass.work.cosines.resize(std::max(pass.work.cosines.size(), ropes));
  pass.work.sines.resize(std::max(pass.work.sines.size(), ropes));
  for (size_t i = 0; i < ropes; ++i) {
    const int64_t half = pass.spans.front().sequence->rope(static_cast<int64_t>(i)).half();
    float* cosines = pass.work.cosines[i].Get(pass.rows * half);
    float* sines = pass.work.sines[i].Get(pass.rows * half);
    for (const RowSpan& span : pass.spans) {
      const RopeFrequencies& rope = span.sequence->rope(static_cast<int64_t>(i));
      ForRange(pass, span.count, half * 64, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n) {
          rope.Angles(span.position + n, cosines + (span.row + n) * half, sines + (span.row + n) * half);
        }
      });
    }
  }
}

const uint8_t* MaskRow(const std::vector<std::vector<uint8_t>>& rows, const Network& network, int64_t visit) {
  if (rows.empty()) return nullptr;
  const bool is_per_visit = static_cast<int64_t>(rows.size()) == network.visits();
  const int64_t row = is_per_visit ? visit : visit % static_cast<int64_t>(network.layers.size());
  return rows[static_cast<size_t>(row)].data();
}

bool IsLayerOn(const ActiveSet* active, const Network& network, int64_t visit) {
  if (active == nullptr || active->layer_gates.empty() || visit >= network.visits()) return true;
  return HasBit(active->layer_gates.data(), visit % static_cast<int64_t>(network.layers.size()));
}

namespace {

/// x += branch on the rows of spans that take part, through the branch's own norm where it has one.
void AddBranch(Pass& pass, const NormWeight& norm, float* branch, float* x) {
  const int64_t hidden = pass.hidden();
  for (const RowSpan& span : pass.spans) {
    if (!span.is_on) continue;
    ForRange(pass, span.count, hidden * 2, [&](int64_t begin, int64_t end) {
      for (int64_t row = span.row + begin; row < span.row + end; ++row) {
        float* from = branch + row * hidden;
        if (!norm.empty()) {
          pass.kernels.rms_norm(from, norm.data(), pass.network.config.rms_norm_eps, hidden, from);
        }
        pass.kernels.add_scaled(from, 1.0f, hidden, x + row * hidden);
      }
    });
  }
}

/// Gemma 4: x += norm(projection(gelu(gate x) * ple)), ple being this layer's part of the row's inputs.
void AddPerLayerInput(Pass& pass, const PerLayerInput& input, int64_t visit, float* branch, float* x) {
  const int64_t width = pass.network.per_layer_width;
  const int64_t row_width = width * static_cast<int64_t>(pass.network.layers.size());
  const float* inputs = pass.work.per_layer.Get(pass.rows * row_width);
  float* gate = pass.work.gate.Get(pass.rows * width);
  pass.work.input.Set(x, pass.rows, pass.hidden());
  Multiply(pass, pass.work.input, {{&input.gate, gate}});
  for (int64_t row = 0; row < pass.rows; ++row) {
    float* at = gate + row * width;
    pass.kernels.gelu_mul(at, inputs + row * row_width + visit * width, width, at);
  }
  pass.work.inner.Set(gate, pass.rows, width);
  Multiply(pass, pass.work.inner, {{&input.projection, branch}});
  AddBranch(pass, input.norm, branch, x);
}

}  // namespace

bool RunMixer(Pass& pass, const Layer& layer, int64_t visit, float* x) {
  bool is_any_on = false;
  for (RowSpan& span : pass.spans) {
    span.is_on = IsLayerOn(span.active, pass.network, visit);
    is_any_on = is_any_on || span.is_on;
  }
  if (!is_any_on) return false;
  const ProfileScope scope(pass.profile, Operator::kNorms);
  const int64_t hidden = pass.hidden();
  float* normed = pass.work.normed.Get(pass.rows * hidden);
  float* branch = pass.work.branch.Get(pass.rows * hidden);

  NormRows(pass, x, layer.input_norm, pass.rows, normed);
  if (const auto* attention = std::get_if<Attention>(&layer.mixer)) {
    const ProfileScope inner(pass.profile, Operator::kAttention);
    RunAttention(pass, *attention, visit, normed, branch);
  } else if (const auto* net = std::get_if<DeltaNet>(&layer.mixer)) {
    const ProfileScope inner(pass.profile, Operator::kDeltaConvolution);
    RunDeltaNet(pass, *net, visit, normed, branch);
  } else {
    const ProfileScope inner(pass.profile, Operator::kShortConv);
    RunShortConv(pass, std::get<ShortConv>(layer.mixer), visit, normed, branch);
  }
  AddBranch(pass, layer.mixer_out_norm, branch, x);
  return true;
}

void RunAfterMixer(Pass& pass, const Layer& layer, int64_t visit, float* x) {
  const ProfileScope scope(pass.profile, Operator::kNorms);
  const int64_t hidden = pass.hidden();
  float* normed = pass.work.normed.Get(pass.rows * hidden);
  float* branch = pass.work.branch.Get(pass.rows * hidden);
  NormRows(pass, x, layer.ffn_norm, pass.rows, normed);
  if (const auto* ffn = std::get_if<FeedForward>(&layer.ffn)) {
    const ProfileScope inner(pass.profile, Operator::kFeedForward);
    RunFeedForward(pass, *ffn, visit, normed, branch);
  } else {
    const ProfileScope inner(pass.profile, Operator::kExperts);
    RunMixture(pass, std::get<Mixture>(layer.ffn), visit, normed, branch);
  }
  AddBranch(pass, layer.ffn_out_norm, branch, x);

  if (layer.per_layer) AddPerLayerInput(pass, *layer.per_layer, visit, branch, x);
  if (layer.scalar != 1.0f) {
    for (const RowSpan& span : pass.spans) {
      if (!span.is_on) continue;
      for (int64_t i = span.row * hidden; i < (span.row + span.count) * hidden; ++i) x[i] *= layer.scalar;
    }
  }
}

}  // namespace cmforge::engine
