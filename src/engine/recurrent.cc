// Layers with a recurrent state: the gated delta net and LFM2's short convolution. The convolution of a row reads the
// rows before it, wherever they came from, and the delta rule cuts its chunks at multiples of 64 tokens from the start
// of the sequence, so every split of a prompt gives the same bits.
#include <algorithm>
#include <cmath>

#include "engine/pass.h"

namespace cmforge::engine {
namespace {

/// Causal depthwise convolution of a span's rows, [count, channels] at `in`, over the span's own history; the
/// history then holds the newest kernel - 1 inputs. `after` (or none) is applied to each output row.
template <class After>
void Convolve(Pass& pass, const RowSpan& span, const std::vector<float>& taps, int64_t kernel,
              int64_t channels, const float* in, std::vector<float>& history, float* out, After after) {
  const int64_t past = kernel - 1;
  ForRange(pass, span.count, channels * kernel, [&](int64_t begin, int64_t end) {
    std::vector<const float*> rows(static_cast<size_t>(kernel));
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t j = 0; j < kernel; ++j) {
        const int64_t at = n - past + j;
        rows[static_cast<size_t>(j)] = at < 0 ? history.data() + (past + at) * channels : in + at * channels;
      }
      float* to = out + n * channels;
      pass.kernels.conv_row(rows.data(), taps.data(), kernel, channels, 0, channels, to);
      after(to, n);
    }
  });
  const int64_t kept = std::max<int64_t>(0, past - span.count);  // old rows that stay
  std::copy(history.end() - kept * channels, history.end(), history.begin());
  const int64_t fresh = past - kept;
  std::copy_n(in + (span.count - fresh) * channels, fresh * channels, history.begin() + kept * channels);
}

}  // namespace

void RunDeltaNet(Pass& pass, const DeltaNet& net, int64_t visit, const float* in, float* out) {
  Workspace& work = pass.work;
  const int64_t channels = net.channels(), inner = net.value_heads * net.value_dim;
  const int64_t keys = net.key_heads * net.key_dim;
  float* qkv = work.conv_in.Get(pass.rows * channels);
  float* z = work.gate.Get(pass.rows * inner);
  float* decay = work.mix_a.Get(pass.rows * net.value_heads);
  float* beta = work.mix_b.Get(pass.rows * net.value_heads);
  {
    const ProfileScope scope(pass.profile, Operator::kDeltaProducts);
    work.input.Set(in, pass.rows, pass.hidden());
    Multiply(pass, work.input, {{&net.qkv, qkv}, {&net.z, z}, {&net.a, decay}, {&net.b, beta}});
  }

  float* mixed = work.conv_out.Get(pass.rows * channels);
  float* result = work.delta_out.Get(pass.rows * inner);
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(net.key_dim)));
  for (const RowSpan& span : pass.spans) {
    if (!span.is_on) {
      std::fill_n(result + span.row * inner, span.count * inner, 0.0f);
      continue;
    }
    LayerState& state = span.sequence->state(visit);
    float* first = mixed + span.row * channels;
    Convolve(pass, span, net.taps, net.kernel, channels, qkv + span.row * channels, state.conv, first,
             [&](float* row, int64_t n) {
               pass.kernels.silu(row, channels, row);
               for (int64_t h = 0; h < net.key_heads; ++h) {
                 float *q = row + h * net.key_dim, *k = row + keys + h * net.key_dim;
                 pass.kernels.l2_norm(q, 1e-6, scale, net.key_dim, q);
                 pass.kernels.l2_norm(k, 1e-6, 1.0f, net.key_dim, k);
               }
               float* gates = decay + (span.row + n) * net.value_heads;
               for (int64_t h = 0; h < net.value_heads; ++h) {
                 const auto x = static_cast<double>(gates[h] + net.dt_bias[static_cast<size_t>(h)]);
                 const double softplus = x > 20 ? x : std::log1p(std::exp(x));
                 gates[h] = static_cast<float>(
                     std::exp(-static_cast<double>(net.decay_log[static_cast<size_t>(h)]) * softplus));
               }
               float* b = beta + (span.row + n) * net.value_heads;
               pass.kernels.sigmoid(b, net.value_heads, b);
             });
    const int64_t group = net.value_heads / net.key_heads;
    const ProfileScope scope(pass.profile, Operator::kDeltaRule);
    ForRange(pass, net.value_heads, span.count * net.key_dim * net.value_dim * 4,
             [&](int64_t begin, int64_t end) {
               for (int64_t h = begin; h < end; ++h) {
                 DeltaRuleArgs args;
                 args.tokens = span.count;
                 args.key_dim = net.key_dim;
                 args.value_dim = net.value_dim;
                 args.filled = state.delta_filled;
                 args.q = first + h / group * net.key_dim;
                 args.k = first + keys + h / group * net.key_dim;
                 args.qk_stride = args.v_stride = channels;
                 args.v = first + 2 * keys + h * net.value_dim;
                 args.decay = decay + span.row * net.value_heads + h;
                 args.beta = beta + span.row * net.value_heads + h;
                 args.gate_stride = net.value_heads;
                 args.state = state.delta.data() + h * DeltaStateFloats(net.key_dim, net.value_dim);
                 args.out = result + span.row * inner + h * net.value_dim;
                 args.out_stride = inner;
                 pass.kernels.delta_rule(args);
               }
             });
    state.delta_filled = (state.delta_filled + span.count) % kDeltaChunk;
  }
  ForRange(pass, pass.rows, inner * 3, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* at = result + row * inner;
      for (int64_t h = 0; h < net.value_heads; ++h) {
        float* head = at + h * net.value_dim;
        pass.kernels.rms_norm(head, net.norm.data(), pass.network.config.rms_norm_eps, net.value_dim, head);
      }
      pass.kernels.silu_mul(z + row * inner, at, inner, at);
    }
  });
  const ProfileScope scope(pass.profile, Operator::kDeltaProducts);
  work.inner.Set(result, pass.rows, inner);
  Multiply(pass, work.inner, {{&net.out, out}});
}

void RunShortConv(Pass& pass, const ShortConv& conv, int64_t visit, const float* in, float* out) {
  Workspace& work = pass.work;
  const int64_t hidden = pass.hidden();
  float* projected = work.conv_in.Get(pass.rows * 3 * hidden);
  float* gated = work.conv_out.Get(pass.rows * hidden);
  float* result = work.delta_out.Get(pass.rows * hidden);
  work.input.Set(in, pass.rows, hidden);
  Multiply(pass, work.input, {{&conv.in, projected}});
  for (int64_t row = 0; row < pass.rows; ++row) {
    const float *b = projected + row * 3 * hidden, *x = b + 2 * hidden;
    for (int64_t c = 0; c < hidden; ++c) gated[row * hidden + c] = b[c] * x[c];
  }
  for (const RowSpan& span : pass.spans) {
    if (!span.is_on) {
      std::fill_n(result + span.row * hidden, span.count * hidden, 0.0f);
      continue;
    }
    Convolve(pass, span, conv.taps, conv.kernel, hidden, gated + span.row * hidden,
             span.sequence->state(visit).conv, result + span.row * hidden, [&](float* row, int64_t n) {
               const float* c = projected + (span.row + n) * 3 * hidden + hidden;
               for (int64_t i = 0; i < hidden; ++i) row[i] *= c[i];
             });
  }
  work.inner.Set(result, pass.rows, hidden);
  Multiply(pass, work.inner, {{&conv.out, out}});
}

}  // namespace cmforge::engine
